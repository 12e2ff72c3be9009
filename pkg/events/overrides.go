package events

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/cloudevents/sdk-go/v2/event"
	"sigs.k8s.io/json"
)

// overrides is K_CE_OVERRIDES: CloudEventOverrides of knative.dev/pkg/apis/duck/v1.
type overrides struct {
	Extensions map[string]string `json:"extensions"`
}

// parseOverrides gives the extensions that every event gets. A SinkBinding that has none sets the variable to nothing.
func parseOverrides(text string) (map[string]string, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var parsed overrides
	if err := json.UnmarshalCaseSensitivePreserveInts([]byte(text), &parsed); err != nil {
		return nil, fmt.Errorf(`is not JSON as {"extensions":{"name":"value"}}: %w`, err)
	}
	var faults []error
	for name, value := range parsed.Extensions {
		if err := checkExtension(name, value); err != nil {
			faults = append(faults, fmt.Errorf("extension %q %w", name, err))
		}
	}
	slices.SortFunc(faults, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return parsed.Extensions, errors.Join(faults...)
}

// checkExtension has the rules of CloudEvents 1.0. The SDK would take upper case too, and make it lower.
func checkExtension(name, value string) error {
	if strings.ToLower(name) != name || !event.IsExtensionNameValid(name) {
		return errors.New("is not a name of lower-case letters and digits")
	}
	probe := event.New()
	if err := probe.Context.SetExtension(name, value); err != nil || name == "data" {
		return errors.New("is an attribute of CloudEvents itself and cannot be overridden")
	}
	if !printable(value) {
		return errors.New("has a value with control characters")
	}
	return nil
}

// printable tells whether the text may be an attribute's, and so a header's. CloudEvents has no control characters.
func printable(text string) bool { return !strings.ContainsFunc(text, unicode.IsControl) }
