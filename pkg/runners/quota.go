package runners

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/kube"
	"flint.dev/flint/pkg/launch"
	"flint.dev/flint/pkg/runner"
)

const (
	// living selects what has not ended.
	living = "status.phase!=Succeeded,status.phase!=Failed"
	// quotaRetry is the advice to whoever is one too many.
	quotaRetry = 5 * time.Second
)

// quota confirms a runner that is held, if it is not one too many. It is nil without quotas.
//
// Metadata is enough as long as there is room for all. Else it is asked who is held: those that were released come
// first, and of those that are held whoever was created first, by the resource version, which is that of the creation as long as
// nobody changes them; one that somebody has changed is still before those of later seconds. So whoever passes last has seen
// all others that pass: never do more than the quota, and of those that come at once it is never all that are refused. Times
// alone would not do: they have whole seconds.
func (r *Runners) quota(terms runner.Terms) func(context.Context, kube.Client, *unstructured.Unstructured) *api.Error {
	perParent, perNamespace := r.Settings.MaxPerParent, r.Settings.MaxPerNamespace
	if perParent == 0 && perNamespace == 0 {
		return nil
	}
	return func(ctx context.Context, client kube.Client, own *unstructured.Unstructured) *api.Error {
		selector := launch.LabelKind + "=" + string(launch.Runner)
		if perNamespace == 0 {
			selector += "," + runner.LabelParentUID + "=" + terms.ParentUID
		}
		for _, metadataOnly := range []bool{true, false} {
			siblings, all, err := count(ctx, client, own, kube.ListOptions{LabelSelector: selector, FieldSelector: living, MetadataOnly: metadataOnly})
			if err != nil {
				return err
			}
			overParent, overNamespace := perParent > 0 && siblings > perParent, perNamespace > 0 && all > perNamespace
			switch {
			case !overParent && !overNamespace:
				return nil
			case metadataOnly:
			case overParent:
				return tooMany(fmt.Sprintf("pod %s/%s has %d runners", own.GetNamespace(), terms.ParentName, perParent), "FLINT_RUNNER_MAX_PER_PARENT")
			default:
				return tooMany(fmt.Sprintf("namespace %s has %d runners", own.GetNamespace(), perNamespace), "FLINT_RUNNER_MAX_PER_NAMESPACE")
			}
		}
		return nil
	}
}

func tooMany(what, setting string) *api.Error {
	e := api.Errorf(api.TooManyRunners, "%s, which is as many as may live at once (%s); the same request may be repeated when one has ended", what, setting)
	e.RetryAfter = quotaRetry
	return e
}

// count counts the runner and those before it: of its parent, and all. By metadata alone, everything is before it.
func count(ctx context.Context, client kube.Client, own *unstructured.Unstructured, options kube.ListOptions) (siblings, all int, err *api.Error) {
	parent := own.GetLabels()[runner.LabelParentUID]
	siblings, all = 1, 1
	err = each(ctx, client, podRef(own.GetNamespace(), ""), options, func(other *unstructured.Unstructured) {
		if other.GetUID() == own.GetUID() || other.GetDeletionTimestamp() != nil || !options.MetadataOnly && !before(other, own) {
			return
		}
		all++
		if other.GetLabels()[runner.LabelParentUID] == parent {
			siblings++
		}
	})
	return siblings, all, err
}

// before tells whether the other runner, read whole, comes before this one, which is held.
func before(other, own *unstructured.Unstructured) bool {
	if !launch.Held(other) {
		return true
	}
	if theirs, ours := other.GetCreationTimestamp(), own.GetCreationTimestamp(); theirs.Before(&ours) {
		return true
	}
	order, err := resourceversion.CompareResourceVersion(other.GetResourceVersion(), own.GetResourceVersion())
	return err != nil || order < 0
}
