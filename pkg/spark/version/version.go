// Package version holds what differs between the Spark lines that Flint speaks,
// in one table, so that no other package compares version numbers.
//
// A Version is the text of one release ("4.2.0") together with the row of its
// line ("4.2"). The text goes into the label spark-version and into
// {{SPARK_VERSION}}; the row decides the shape of what is created.
package version

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Features is one row of the table: what a Spark line does at submission that
// another line does not.
type Features struct {
	// Line is the major and minor number, "4.2".
	Line string
	// LoadSparkDefaults: the option --load-spark-defaults exists (4.0).
	LoadSparkDefaults bool
	// DriverDefaultClassPath: the option --driver-default-class-path exists (4.0).
	DriverDefaultClassPath bool
	// ExtraPropertiesFile: the option --extra-properties-file exists (4.2, SPARK-54313).
	ExtraPropertiesFile bool
	// XmxAnywhere: the launcher refuses driver java options that contain "Xmx"
	// anywhere (3.5) rather than a token that starts with "-Xmx" (4.0).
	XmxAnywhere bool
	// ConnectPort: driver container and Service carry the port spark-connect (4.1, SPARK-52193).
	ConnectPort bool
	// ConnectProtocol: the Service's port spark-connect has appProtocol grpc (4.2).
	ConnectProtocol bool
	// NetworkPolicy: the step NetworkPolicyFeatureStep exists (4.2, SPARK-55653).
	NetworkPolicy bool
	// ReadWriteOncePod: claims are made ReadWriteOncePod unless
	// spark.kubernetes.legacy.useReadWriteOnceAccessMode is true (4.0); before, ReadWriteOnce is the default.
	ReadWriteOncePod bool
	// VolumeMetadata: label.* and annotation.* of claims, options.type of hostPath
	// and mount.subPathExpr are read (4.0).
	VolumeMetadata bool
	// VolumeUnits: options.sizeLimit of a volume must not be a bare number below 1024 (4.0).
	VolumeUnits bool
	// MinMemoryOverhead: spark.driver.minMemoryOverhead is read (4.0); before, it is fixed at 384 MiB.
	MinMemoryOverhead bool
	// BinarySuffixes: the suffixes ki, kib, mi, mib, ... are read in sizes (4.2).
	BinarySuffixes bool
	// LabelPlaceholders: {{APP_ID}} and {{EXECUTOR_ID}} are replaced in values of driver labels (4.0); those of
	// annotations are replaced in all lines.
	LabelPlaceholders bool
	// ImageVersion: {{SPARK_VERSION}} is replaced in the driver image (4.1).
	ImageVersion bool
	// ExcludedSteps: spark.kubernetes.driver.pod.excludedFeatureSteps is read (4.1).
	ExcludedSteps bool
	// PublishNotReady: the driver Service carries publishNotReadyAddresses (4.3, SPARK-58113).
	PublishNotReady bool
	// PrivilegeEscalation: the driver's container has securityContext.allowPrivilegeEscalation,
	// false unless spark.kubernetes.driver.securityContext.allowPrivilegeEscalation says otherwise (4.3).
	PrivilegeEscalation bool
}

// table has one row a line, oldest first. A new Spark line is a new row.
var table = []Features{
	{
		Line: "3.5", XmxAnywhere: true,
	},
	{
		Line: "4.0", LabelPlaceholders: true,
		LoadSparkDefaults: true, DriverDefaultClassPath: true,
		ReadWriteOncePod: true, VolumeMetadata: true, VolumeUnits: true, MinMemoryOverhead: true,
	},
	{
		Line: "4.1", LabelPlaceholders: true,
		LoadSparkDefaults: true, DriverDefaultClassPath: true,
		ReadWriteOncePod: true, VolumeMetadata: true, VolumeUnits: true, MinMemoryOverhead: true,
		ConnectPort: true, ImageVersion: true, ExcludedSteps: true,
	},
	{
		Line: "4.2", LabelPlaceholders: true,
		LoadSparkDefaults: true, DriverDefaultClassPath: true, ExtraPropertiesFile: true,
		ReadWriteOncePod: true, VolumeMetadata: true, VolumeUnits: true, MinMemoryOverhead: true,
		ConnectPort: true, ImageVersion: true, ExcludedSteps: true, NetworkPolicy: true, BinarySuffixes: true, ConnectProtocol: true,
	},
	{
		Line: "4.3", LabelPlaceholders: true,
		LoadSparkDefaults: true, DriverDefaultClassPath: true, ExtraPropertiesFile: true,
		ReadWriteOncePod: true, VolumeMetadata: true, VolumeUnits: true, MinMemoryOverhead: true,
		ConnectPort: true, ImageVersion: true, ExcludedSteps: true, NetworkPolicy: true, BinarySuffixes: true, ConnectProtocol: true,
		PublishNotReady: true, PrivilegeEscalation: true,
	},
}

// Version is one Spark release. The zero value is no version; make one with Parse.
type Version struct {
	text string
	row  *Features
}

var pattern = regexp.MustCompile(`^([0-9]{1,4}\.[0-9]{1,4})\.[0-9]{1,4}$`)

// Parse reads a release number of three parts, such as "4.2.0". It returns an
// error that names the lines it knows for any other text and for other lines.
func Parse(text string) (Version, error) {
	m := pattern.FindStringSubmatch(text)
	if m == nil {
		return Version{}, fmt.Errorf("spark version %q is not of the form MAJOR.MINOR.PATCH", text)
	}
	i := slices.IndexFunc(table, func(f Features) bool { return f.Line == m[1] })
	if i < 0 {
		return Version{}, fmt.Errorf("spark version %q is not of a known line: %s", text, strings.Join(Lines(), ", "))
	}
	return Version{text: text, row: &table[i]}, nil
}

// Lines are the known Spark lines, oldest first.
func Lines() []string {
	lines := make([]string, len(table))
	for i := range table {
		lines[i] = table[i].Line
	}
	return lines
}

// String is the text that Parse was given.
func (v Version) String() string { return v.text }

// Features is the row of the table for the version's line.
func (v Version) Features() Features { return *v.row }
