package embedded

import (
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Discovery, so that kubectl works with the kubeconfig of an embedded cluster.

func discoverVersions(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, &metav1.APIVersions{
		TypeMeta: metav1.TypeMeta{Kind: "APIVersions", APIVersion: "v1"}, Versions: []string{"v1"},
		ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{},
	})
}

func discoverGroups(w http.ResponseWriter, _ *http.Request) {
	list := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{}}
	seen := map[string]bool{"": true}
	for _, res := range resources {
		if seen[res.gvr.Group] {
			continue
		}
		seen[res.gvr.Group] = true
		version := metav1.GroupVersionForDiscovery{GroupVersion: res.gvr.GroupVersion().String(), Version: res.gvr.Version}
		list.Groups = append(list.Groups, metav1.APIGroup{
			Name: res.gvr.Group, Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version,
		})
	}
	writeJSON(w, http.StatusOK, list)
}

func discoverResources(w http.ResponseWriter, r *http.Request, gv schema.GroupVersion) {
	list := &metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.String(),
	}
	for _, res := range resources {
		if res.gvr.GroupVersion() == gv {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: res.gvr.Resource, Kind: res.kind, Namespaced: res.namespaced,
				Verbs: metav1.Verbs{"create", "delete", "get", "list", "patch", "update"},
			})
		}
	}
	if len(list.APIResources) == 0 {
		writeError(w, lacks(r, http.StatusNotFound))
		return
	}
	writeJSON(w, http.StatusOK, list)
}
