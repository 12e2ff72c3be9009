package config

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"flint.dev/flint/pkg/filejob"
)

// File is how file jobs behave.
type File struct {
	// Job is what all of them have in common. Without an image there are none.
	Job filejob.Settings
	// ClaimLabel is one that a claim must have, as "key=value" or "key"; empty means none.
	ClaimLabel string
	// Unbound allows claims that wait for their first consumer.
	Unbound bool
	// Wait is how long an answer waits for a result when its request does not say, WaitLimit how long at most.
	Wait, WaitLimit time.Duration
	// Waiters is how many answers may wait at once in one instance.
	Waiters int
	// EventResult is the longest result, in bytes of JSON, that a completion event carries whole.
	EventResult int64
}

// readers read one setting each, and note what is wrong with it.
type readers struct {
	fault    func(name, value, format string, args ...any)
	integer  func(name, text string, least, most int64) int64
	duration func(name, text string, least, most time.Duration) time.Duration
}

func (r readers) boolean(name, text string) bool {
	if text != "true" && text != "false" {
		r.fault(name, text, "must be true or false")
	}
	return text == "true"
}

func (r readers) quantity(name, text string) resource.Quantity {
	q, err := resource.ParseQuantity(text)
	if err != nil || q.Sign() <= 0 {
		r.fault(name, text, "must be a quantity of Kubernetes, such as 500m or 256Mi, and more than 0")
	}
	return q
}

// list are the parts of a text between commas, each of which must be good.
func (r readers) list(name, text string, problems func(string) []string) (parts []string) {
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		if wrong := problems(part); len(wrong) > 0 {
			r.fault(name, part, "%s", wrong[0])
		}
		parts = append(parts, part)
	}
	return parts
}

// file reads the settings of file jobs.
func (env *environment) file(r readers) File {
	const maxID = 1<<31 - 1
	f := File{
		Job: filejob.Settings{
			Image:          env.FileImage,
			PullPolicy:     corev1.PullPolicy(env.FilePullPolicy),
			PullSecrets:    r.list("FLINT_FILE_PULL_SECRETS", env.FilePullSecrets, validation.IsDNS1123Subdomain),
			ServiceAccount: env.FileAccount,
			CPU:            r.quantity("FLINT_FILE_CPU", env.FileCPU),
			Memory:         r.quantity("FLINT_FILE_MEMORY", env.FileMemory),
			User:           r.integer("FLINT_FILE_USER", env.FileUser, 0, maxID),
			Group:          r.integer("FLINT_FILE_GROUP", env.FileGroup, 0, maxID),
			Root:           r.boolean("FLINT_FILE_ROOT", env.FileRoot),
			Timeout:        r.duration("FLINT_FILE_TIMEOUT", env.FileTimeout, time.Second, 7*24*time.Hour),
			LongTimeout:    r.duration("FLINT_FILE_LONG_TIMEOUT", env.FileLongTimeout, time.Second, 7*24*time.Hour),
		},
		ClaimLabel:  env.FileClaimLabel,
		Unbound:     r.boolean("FLINT_FILE_UNBOUND", env.FileUnbound),
		Wait:        r.duration("FLINT_FILE_WAIT", env.FileWait, 0, 10*time.Minute),
		WaitLimit:   r.duration("FLINT_FILE_WAIT_LIMIT", env.FileWaitLimit, 0, 10*time.Minute),
		Waiters:     int(r.integer("FLINT_FILE_WAITERS", env.FileWaiters, 1, 10_000)),
		EventResult: r.integer("FLINT_FILE_EVENT_RESULT", env.FileEventResult, 0, 4<<20),
	}
	l := &f.Job.Limits
	l.ArchiveEntries = r.integer("FLINT_FILE_ARCHIVE_ENTRIES", env.FileArchiveEntries, 1, 10_000_000)
	l.ArchiveBytes = r.integer("FLINT_FILE_ARCHIVE_BYTES", env.FileArchiveBytes, 1, 1<<50)
	l.ArchiveEntryBytes = r.integer("FLINT_FILE_ARCHIVE_ENTRY_BYTES", env.FileArchiveEntryBytes, 1, 1<<50)
	l.ArchiveRatio = r.integer("FLINT_FILE_ARCHIVE_RATIO", env.FileArchiveRatio, 1, 1_000_000)
	l.ReservePercent = r.integer("FLINT_FILE_RESERVE_PERCENT", env.FileReserve, 0, 90)
	l.URLHosts = r.list("FLINT_FILE_URL_HOSTS", env.FileURLHosts, hostProblems)
	l.URLPrivate = r.boolean("FLINT_FILE_URL_PRIVATE", env.FileURLPrivate)
	l.PartIdleSeconds = int64(r.duration("FLINT_FILE_PART_IDLE", env.FilePartIdle, time.Minute, 365*24*time.Hour).Seconds())
	env.checkFile(&f, r)
	return f
}

// checkFile finds what is wrong with settings beside others, and with those that are names.
func (env *environment) checkFile(f *File, r readers) {
	switch f.Job.PullPolicy {
	case "", corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever:
	default:
		r.fault("FLINT_FILE_PULL_POLICY", env.FilePullPolicy, "must be Always, IfNotPresent or Never")
	}
	if name := f.Job.ServiceAccount; name != "" && len(validation.IsDNS1123Subdomain(name)) > 0 {
		r.fault("FLINT_FILE_SERVICE_ACCOUNT", name, "is not a service account's name")
	}
	if f.Job.User == 0 && !f.Job.Root {
		r.fault("FLINT_FILE_USER", env.FileUser, "is root, which FLINT_FILE_ROOT does not allow")
	}
	if f.Job.LongTimeout < f.Job.Timeout {
		r.fault("FLINT_FILE_LONG_TIMEOUT", env.FileLongTimeout, "must not be shorter than FLINT_FILE_TIMEOUT, %v", f.Job.Timeout)
	}
	if f.WaitLimit < f.Wait {
		r.fault("FLINT_FILE_WAIT_LIMIT", env.FileWaitLimit, "must not be shorter than FLINT_FILE_WAIT, %v", f.Wait)
	}
	if f.Job.Limits.URLPrivate && len(f.Job.Limits.URLHosts) == 0 {
		r.fault("FLINT_FILE_URL_PRIVATE", env.FileURLPrivate, "needs FLINT_FILE_URL_HOSTS: private addresses are for hosts that are named")
	}
	if f.ClaimLabel != "" {
		key, value, _ := strings.Cut(f.ClaimLabel, "=")
		if problems := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...); len(problems) > 0 {
			r.fault("FLINT_FILE_CLAIM_LABEL", f.ClaimLabel, "is no label: %s", problems[0])
		}
	}
}

// hostProblems tells what is wrong with an entry of FLINT_FILE_URL_HOSTS.
func hostProblems(entry string) []string {
	host := strings.TrimPrefix(entry, "*.")
	if strings.ContainsAny(host, "/@?#* \t") || host == "" {
		return []string{"is no host, *.domain or host:port"}
	}
	return nil
}
