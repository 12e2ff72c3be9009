package runner

import (
	"maps"
	"slices"
	"strings"
)

const (
	flameParent = "FLAME_PARENT"
	runnerID    = "FLINT_RUNNER_ID"
)

// identity are the variables that say who the runner is, from the downward API. They come first: the kubelet expands
// $(NAME) in the order of the list, and sees only what it has passed (k8s.io/kubernetes/pkg/kubelet,
// makeEnvironmentVariables).
func identity() []object {
	var all []object
	for _, v := range [][2]string{
		{"POD_NAME", "metadata.name"}, {"POD_NAMESPACE", "metadata.namespace"}, {"POD_IP", "status.podIP"}, {"NODE_NAME", "spec.nodeName"},
	} {
		all = append(all, object{"name": v[0], "valueFrom": object{"fieldRef": object{"fieldPath": v[1]}}})
	}
	return all
}

// elixirDefaults are what a release of Elixir needs to be a node that another can connect to, and not a second web server.
func elixirDefaults() []object {
	return []object{
		plain("PHX_SERVER", "false"), plain("RELEASE_DISTRIBUTION", "name"), plain("RELEASE_NODE", "flame_runner@$(POD_IP)"),
	}
}

func plain(name, value string) object { return object{"name": name, "value": value} }

// reserved tells whether the variable is the runner's own, and no request may say what it is.
func reserved(name string) bool {
	return name == flameParent || name == runnerID || named(identity(), name) != nil
}

// env is the list of the runner's container: the identity; then, one entry a name, each in the place of the last that has it,
// defaults, what is inherited, the template's and the request's, moved so far that a variable comes before those that refer to it; then
// what ties the runner to its parent.
func (d *draft) env(t *template, id, secret string) ([]object, error) {
	var inherited []object
	if d.inherits("env") {
		for _, v := range objects(d.parent.rawApp["env"]) {
			if !reserved(text(v, "name")) {
				inherited = append(inherited, v)
			}
		}
	}
	for _, v := range t.env {
		if name := text(v, "name"); reserved(name) {
			return nil, badTemplate("spec.containers["+d.parent.app.Name+"].env", "has %s, which is the runner's own and cannot be set", name)
		}
	}
	var requested []object
	for _, name := range slices.Sorted(maps.Keys(d.request.Env)) {
		if reserved(name) {
			return nil, unprocessable("env."+name, "env has %s, which is the runner's own and cannot be set", name)
		}
		value := d.request.Env[name]
		if !d.request.ExpandEnv {
			value = strings.ReplaceAll(value, "$", "$$")
		}
		requested = append(requested, plain(name, value))
	}
	for _, name := range slices.Sorted(maps.Keys(d.request.SecretEnv)) {
		if reserved(name) {
			return nil, unprocessable("secret_env."+name, "secret_env has %s, which is the runner's own and cannot be set", name)
		}
		if _, twice := d.request.Env[name]; twice {
			return nil, unprocessable("secret_env."+name, "%s is in env and in secret_env", name)
		}
		requested = append(requested, object{"name": name, "valueFrom": object{"secretKeyRef": object{"name": secret, "key": name}}})
	}
	all := slices.Concat(elixirDefaults(), inherited, t.env, requested)
	last := map[string]int{}
	for i, v := range all {
		last[text(v, "name")] = i
	}
	var winners []object
	for i, v := range all {
		if last[text(v, "name")] == i {
			winners = append(winners, v)
		}
	}
	ordered, cycle := order(winners)
	if cycle != nil {
		return nil, unprocessable("env", "the variables %s refer to one another in a circle", strings.Join(cycle, ", "))
	}
	var ties []object
	if d.request.FlameParent != "" {
		ties = append(ties, plain(flameParent, d.request.FlameParent))
	}
	return slices.Concat(identity(), ordered, append(ties, plain(runnerID, id))), nil
}

// order moves each variable before those that refer to it, and changes the order no more than that. A variable that
// refers to itself means one from envFrom. The second result are the names of a circle, or nil.
func order(all []object) (ordered []object, cycle []string) {
	byName := map[string]object{}
	for _, v := range all {
		byName[text(v, "name")] = v
	}
	const onTheWay, done = 1, 2
	state := map[string]int{}
	var way []string
	var visit func(string) bool
	visit = func(name string) bool {
		switch state[name] {
		case done:
			return true
		case onTheWay:
			cycle = way[slices.Index(way, name):]
			return false
		}
		state[name] = onTheWay
		way = append(way, name)
		for _, other := range references(text(byName[name], "value")) {
			if byName[other] != nil && other != name && !visit(other) {
				return false
			}
		}
		way = way[:len(way)-1]
		state[name] = done
		ordered = append(ordered, byName[name])
		return true
	}
	for _, v := range all {
		if !visit(text(v, "name")) {
			return nil, cycle
		}
	}
	return ordered, nil
}

// references are the names that the kubelet would put values for: in $(NAME), where $$ is a dollar sign.
func references(value string) []string {
	var names []string
	for {
		dollar := strings.IndexByte(value, '$')
		if dollar < 0 || dollar+1 == len(value) {
			return names
		}
		value = value[dollar+1:]
		switch value[0] {
		case '$':
			value = value[1:]
		case '(':
			end := strings.IndexByte(value, ')')
			if end < 0 {
				value = value[1:]
				continue
			}
			names = append(names, value[1:end])
			value = value[end+1:]
		}
	}
}

// environ is the env as the list of a container.
func environ(all []object) list {
	entries := make(list, len(all))
	for i, v := range all {
		entries[i] = v
	}
	return entries
}
