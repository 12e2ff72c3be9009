// Package protocol is what passes between Flint and the agent in a file job's pod: the request, as data in the
// pod's environment or in a Secret's file, and the answer, as lines in the pod's log and as its termination message.
//
// The request is never part of args: the kubelet expands $(NAME) and $$ there (kubernetes/kubernetes#101137).
//
// The answer is lines that begin with Prefix and the nonce of this run, which is the pod's uid: nobody who puts a
// file on the volume knows it. A result is the JSON of an api.FileResult in numbered pieces, each line below the 16 KiB
// at which container runtimes split one, and a last line with their number, the length and the SHA-256 of the
// whole. The same result, or a brief one where it is longer than 4,096 bytes (the kubelet's limit), is the
// termination message. So most results are read with the pod's status alone, a long one needs the log, and a log
// that was cut, mixed or forged is noticed.
//
// The lines, each after "flint-file/1 NONCE ", are:
//
//	progress DONE TOTAL             // of api.FileProgress, in decimal digits
//	0 TEXT                          // the first piece of the result's JSON; then 1, 2, ...
//	end PIECES LENGTH SHA256        // of all pieces together; LENGTH in bytes
//	result JSON                     // in the termination message, and there alone
package protocol

import (
	"flint.dev/flint/pkg/api"
)

// What the pod's environment has for the agent.
const (
	EnvRequest     = "FLINT_FILE_REQUEST"      // the Request's JSON in base64, if it is short and has no secret
	EnvRequestFile = "FLINT_FILE_REQUEST_FILE" // the file with the Request's JSON, else
	EnvNonce       = "FLINT_FILE_NONCE"        // the pod's uid, by the downward API
	EnvRoot        = "FLINT_FILE_ROOT"         // where the claim is mounted
)

const (
	// Prefix begins each line of the answer, before a space and the nonce.
	Prefix = "flint-file/1"
	// MaxPiece is the most bytes of the result in one line.
	MaxPiece = 8 << 10
	// MaxResult is the most bytes of a result's JSON: the content of api.MaxInline in base64, or a page of the
	// longest names, with room to spare.
	MaxResult = 4 << 20
	// MaxTermination is the most bytes of a termination message (kubelet, MaxContainerTerminationMessageLength).
	MaxTermination = 4096
	// MaxEnv is the most bytes of EnvRequest: the kernel refuses a string of 128 KiB, name and all (MAX_ARG_STRLEN).
	MaxEnv = 100 << 10
	// MaxProgress is the most progress lines of one run; from then on each waits twice as long as the one before.
	MaxProgress = 2000
)

// Request is what the agent is asked to do.
type Request struct {
	Operation api.FileOperation `json:"operation"`
	// SubPath is the folder of the volume that is the operation's root; empty means the volume's own.
	SubPath string `json:"sub_path,omitempty"`
	// Claim is the claim's name: the word that confirms that the root is to be emptied.
	Claim  string `json:"claim"`
	Limits Limits `json:"limits"`
}

// Limits bound what an operation may cost and where it may reach. They are the settings of Flint.
type Limits struct {
	// Of archives, both ways: entries, bytes in all, bytes of one entry, and how many times larger than the
	// archive its contents may be (from 64 MiB of contents on).
	ArchiveEntries    int64 `json:"archive_entries"`
	ArchiveBytes      int64 `json:"archive_bytes"`
	ArchiveEntryBytes int64 `json:"archive_entry_bytes"`
	ArchiveRatio      int64 `json:"archive_ratio"`
	// ReservePercent of the volume's bytes and inodes stay free, whatever an operation needs.
	ReservePercent int64 `json:"reserve_percent"`
	// URLHosts are the hosts that upload and download may speak to: names, "*.example.org", or "host:port" for another
	// port than 443. Empty means any public address.
	URLHosts []string `json:"url_hosts,omitempty"`
	// URLPrivate allows private, loopback and link-local addresses, and http beside https, for hosts in URLHosts.
	URLPrivate bool `json:"url_private,omitempty"`
	// PartIdleSeconds is how long a partial upload is kept for its resumption.
	PartIdleSeconds int64 `json:"part_idle_seconds"`
}

// DefaultLimits are those of the settings' defaults.
func DefaultLimits() Limits {
	return Limits{
		ArchiveEntries: 100_000, ArchiveBytes: 64 << 30, ArchiveEntryBytes: 16 << 30, ArchiveRatio: 200,
		ReservePercent: 5, PartIdleSeconds: 24 * 3600,
	}
}
