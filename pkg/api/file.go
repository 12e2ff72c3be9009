package api

// FilePath is where file jobs are asked for (POST), and listed (GET).
const FilePath = "/api/v1/file-jobs"

// FileEventType is the type of an event whose data is a FileRequest.
const FileEventType = "dev.flint.file.run.v1"

// FileRequest asks for one file operation on a claim. Its key, submission_id, may be left out over HTTP: such a
// request gets a key of its own, and cannot be repeated safely.
type FileRequest struct {
	SubmissionID string        `json:"submission_id,omitempty"`
	Target       FileTarget    `json:"target"`
	Operation    FileOperation `json:"operation"`
	// WaitSeconds is how long the answer may wait for the result: 0 to the most that the settings allow. Absent
	// means their default, and 0 for an operation that may be long.
	WaitSeconds *int `json:"wait_seconds,omitempty"`
	// TimeoutSeconds is how long the operation may take, from the start of its Job. Absent means the
	// default of the settings, which is longer for an operation that may be long.
	TimeoutSeconds *int `json:"timeout_seconds,omitempty"`
	// InUse says what to do with a claim that a pod has mounted: "refuse", the default of operations that
	// change something, or "allow", that of those that only read.
	InUse string `json:"in_use,omitempty"`
}

// The values of FileRequest.InUse.
const (
	InUseRefuse = "refuse"
	InUseAllow  = "allow"
)

// FileTarget is the folder that an operation's paths are relative to.
type FileTarget struct {
	Namespace string `json:"namespace"`
	Claim     string `json:"claim"`
	// SubPath is a folder of the claim; empty means its root.
	SubPath string `json:"sub_path,omitempty"`
	// RunAsUser, RunAsGroup and FSGroup are who the operation runs as. Absent means as the pod that has the claim
	// mounted, and else as the settings say. Root, 0, is for the settings to allow.
	RunAsUser  *int64 `json:"run_as_user,omitempty"`
	RunAsGroup *int64 `json:"run_as_group,omitempty"`
	FSGroup    *int64 `json:"fs_group,omitempty"`
}

// Op is what an operation does.
type Op string

// The operations.
const (
	OpList     Op = "list"     // the entries of a folder, sorted by name, paged
	OpStat     Op = "stat"     // one entry, and the space that is left
	OpRead     Op = "read"     // a file's bytes, at most MaxInline of them, from offset on
	OpChecksum Op = "checksum" // a file's SHA-256, of any size
	OpWrite    Op = "write"    // a file's bytes anew, at most MaxInline, landed atomically
	OpMkdir    Op = "mkdir"    // one folder
	OpDelete   Op = "delete"   // a file, a link, an empty folder; a tree with recursive
	OpRename   Op = "rename"   // within the claim, never replacing anything
	OpCopy     Op = "copy"     // a file or a tree within the claim, never replacing anything
	OpUpload   Op = "upload"   // a file pulled from a URL, resumable
	OpDownload Op = "download" // a file, or a folder as zip or tar, pushed to a URL
	OpUnzip    Op = "unzip"    // a zip archive into the folder that holds it, all or nothing
	OpUntar    Op = "untar"    // a tar archive, plain or gzip, likewise
	OpBatch    Op = "batch"    // up to MaxBatch of the others but batch, one after the other, in one pod
)

const (
	// MaxInline is the most bytes that are read or written within a request or a result.
	MaxInline = 700 << 10
	// MaxBatch is the most operations of a batch.
	MaxBatch = 50
	// MaxList is the most entries of one page of a list, and its default.
	MaxList = 2000
	// MaxConflicts is the most names in FileResult.Conflicts.
	MaxConflicts = 200
)

// FileOperation is one operation. Paths are relative to the target, slash-separated; "" is the target itself. A name
// that is not UTF-8 is given in base64, in path_b64 or to_b64. A field that the operation has no use for is refused.
type FileOperation struct {
	Op      Op     `json:"op"`
	Path    string `json:"path,omitempty"`
	PathB64 []byte `json:"path_b64,omitempty"`
	// To is the new name: of rename and copy.
	To    string `json:"to,omitempty"`
	ToB64 []byte `json:"to_b64,omitempty"`

	// Limit and Cursor page a list: the most entries, and next_cursor of the page before.
	Limit  int    `json:"limit,omitempty"`
	Cursor string `json:"cursor,omitempty"`

	// Offset and Length are the part of the file that read and checksum take; length 0 means to its end.
	Offset int64 `json:"offset,omitempty"`
	Length int64 `json:"length,omitempty"`

	// Content is what write writes, in base64; required, and may be empty. Text is the same as plain text, for people.
	Content *[]byte `json:"content,omitempty"`
	Text    *string `json:"text,omitempty"`
	// SHA256 is the digest that the content of write must have, as 64 lower-case hexadecimal digits, where the
	// caller wants it checked; else BAD_DIGEST.
	SHA256 string `json:"sha256,omitempty"`
	// ExpectSHA256 is a precondition of write, delete, rename, copy and upload: the file's present digest, as 64
	// lower-case hexadecimal digits. CreateOnly is the other one, of write and upload: there is nothing yet.
	ExpectSHA256 string `json:"expect_sha256,omitempty"`
	CreateOnly   bool   `json:"create_only,omitempty"`

	// Recursive lets delete take a folder with all that is in it. Confirm must be the claim's name where
	// the target itself is to be emptied.
	Recursive bool   `json:"recursive,omitempty"`
	Confirm   string `json:"confirm,omitempty"`

	// Overwrite lets unzip and untar replace files.
	Overwrite bool `json:"overwrite,omitempty"`

	// Source is what upload pulls.
	Source *FileSource `json:"source,omitempty"`
	// Sink is where download pushes to.
	Sink *FileSink `json:"sink,omitempty"`

	// Operations are a batch's. It ends at the first that fails, unless ContinueOnError.
	Operations      []FileOperation `json:"operations,omitempty"`
	ContinueOnError bool            `json:"continue_on_error,omitempty"`
}

// FileSource is a file elsewhere.
type FileSource struct {
	URL string `json:"url"`
	// Size in bytes and SHA256, as 64 lower-case hexadecimal digits, are what must have arrived before anything lands.
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	// Token is sent as "Authorization: Bearer", to that URL and no other.
	Token string `json:"token,omitempty"`
}

// FileSink is where a download goes: a PUT, as presigned URLs take it.
type FileSink struct {
	URL   string `json:"url"`
	Token string `json:"token,omitempty"`
	// Format is "file", the default, for a file as it is; "zip" or "tar" for a folder.
	Format string `json:"format,omitempty"`
}

// Mutates tells whether the operation changes what is on the claim.
func (o *FileOperation) Mutates() bool {
	switch o.Op {
	case OpList, OpStat, OpRead, OpChecksum, OpDownload:
		return false
	case OpBatch:
		for i := range o.Operations {
			if o.Operations[i].Mutates() {
				return true
			}
		}
		return false
	default:
		return true
	}
}

// Long tells whether the operation may take long, so that nobody waits for it unless told to.
func (o *FileOperation) Long() bool {
	switch o.Op {
	case OpUpload, OpDownload, OpUnzip, OpUntar, OpCopy, OpChecksum:
		return true
	case OpDelete:
		return o.Recursive
	case OpBatch:
		for i := range o.Operations {
			if o.Operations[i].Long() {
				return true
			}
		}
		return false
	default:
		return false
	}
}

// Secret tells whether the operation holds something that must not be in a Job's or a Pod's spec: content or a token, or a
// URL, which may be presigned.
func (o *FileOperation) Secret() bool {
	if o.Content != nil || o.Text != nil || o.Source != nil || o.Sink != nil {
		return true
	}
	for i := range o.Operations {
		if o.Operations[i].Secret() {
			return true
		}
	}
	return false
}

// FileType is what an entry is.
type FileType string

// The types of entries.
const (
	TypeFile    FileType = "file"
	TypeDir     FileType = "dir"
	TypeSymlink FileType = "symlink"
	TypeOther   FileType = "other"
)

// FileEntry is one name in a folder. Of an entry that vanished while it was looked at only the name is known.
type FileEntry struct {
	Name string `json:"name"`
	// NameB64 is there when the name is not UTF-8, and Name shows it as well as it can.
	NameB64 []byte   `json:"name_b64,omitempty"`
	Type    FileType `json:"type"`
	Size    int64    `json:"size"`
	// Modified is RFC 3339 with nanoseconds; empty where nobody knows.
	Modified      string `json:"modified,omitempty"`
	Mode          string `json:"mode,omitempty"` // octal, as "0644"
	UID           int64  `json:"uid"`
	GID           int64  `json:"gid"`
	Nlink         int64  `json:"nlink"`
	Inode         int64  `json:"inode"`
	LinkTarget    string `json:"link_target,omitempty"`
	LinkTargetB64 []byte `json:"link_target_b64,omitempty"`
}

// FileResult is what became of an operation. An empty Code is success; any other is one of FileCodes.
type FileResult struct {
	Op      Op     `json:"op"`
	Code    Code   `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
	// Path is the one that the message is about, where that is another than the request's.
	Path string `json:"path,omitempty"`

	Entries    *[]FileEntry `json:"entries,omitempty"` // list: never null then
	NextCursor string       `json:"next_cursor,omitempty"`
	Entry      *FileEntry   `json:"entry,omitempty"` // stat
	// AvailableBytes is the space left on the volume for the operation's user; -1 where it cannot be measured.
	AvailableBytes *int64 `json:"available_bytes,omitempty"`
	// Content is what read has read: of a file of Size bytes in all.
	Content *[]byte `json:"content,omitempty"`
	Size    *int64  `json:"size,omitempty"`
	// SHA256 is of the whole file: as read, as written, or, with the code FILE_CHANGED, as it is. Of a part of
	// a file it is of that part.
	SHA256 string `json:"sha256,omitempty"`

	// Files, Folders and Bytes are how many were handled: written, copied, deleted, sent.
	Files   int64 `json:"files,omitempty"`
	Folders int64 `json:"folders,omitempty"`
	Bytes   int64 `json:"bytes,omitempty"`
	// Skipped counts what was left out: links and devices of a download, devices, pipes and sockets of a copy, mount points of a tree.
	Skipped int64 `json:"skipped,omitempty"`
	// HardlinksBroken is true when a file that had other names was replaced: those keep the old bytes.
	HardlinksBroken bool `json:"hardlinks_broken,omitempty"`
	// Resumed is how many bytes of an upload were there from an earlier attempt.
	Resumed int64 `json:"resumed,omitempty"`

	// NeedBytes is what VOLUME_FULL lacked, beside AvailableBytes.
	NeedBytes *int64 `json:"need_bytes,omitempty"`
	// Conflicts are the files that an archive would replace: at most MaxConflicts and 8 KiB, of ConflictCount in all.
	Conflicts     []string `json:"conflicts,omitempty"`
	ConflictCount int64    `json:"conflict_count,omitempty"`
	// ArchiveEntry is the entry that an ARCHIVE code is about.
	ArchiveEntry string `json:"archive_entry,omitempty"`

	// Results are a batch's, in its order, as far as it came.
	Results []FileResult `json:"results,omitempty"`

	// Partial is there when bulk was left out: entries, content, conflicts, results. The whole is in the pod's log.
	Partial *FilePartial `json:"partial,omitempty"`
}

// FileCodes are the codes that an operation itself may end with.
var FileCodes = []Code{
	BadRequest, BadPath, BadDigest, PolicyDenied, NotFound, FileExists, FileChanged, TypeConflict, TooLarge, VolumeFull,
	CrossDevice, PermissionDenied, NotEmpty, OffsetMismatch, TransferFailed, BatchFailed, ArchiveInvalid, ArchiveUnsafe,
	ArchiveSymlink, ArchiveTooLarge, Cancelled, InternalServerError,
}

// FilePartial tells of the whole result: its JSON has so many bytes, and that SHA-256.
type FilePartial struct {
	Length int64  `json:"length"`
	SHA256 string `json:"sha256"`
}

// FileProgress is how far an operation has come, in bytes or entries. Total is 0 where nobody knows.
type FileProgress struct {
	Done  int64 `json:"done"`
	Total int64 `json:"total"`
}

// FileJob is one operation as it is answered: created, running or done.
type FileJob struct {
	SubmissionID string `json:"submission_id"`
	ID           string `json:"id"`
	Namespace    string `json:"namespace"`
	Claim        string `json:"claim"`
	Op           Op     `json:"op"`
	// Job and UID name the Kubernetes Job.
	Job   string `json:"job"`
	UID   string `json:"uid"`
	State State  `json:"state"`
	// CreatedAt, StartedAt and FinishedAt are RFC 3339, UTC; empty where not yet.
	CreatedAt  string `json:"created_at"`
	StartedAt  string `json:"started_at,omitempty"`
	FinishedAt string `json:"finished_at,omitempty"`
	// DuplicateSubmission is true when the job of this key was there already.
	DuplicateSubmission bool `json:"duplicate_submission,omitempty"`
	// Consistency is "live" when a pod had the claim mounted at the start: what was read may be in the middle of a change.
	Consistency string        `json:"consistency,omitempty"`
	Progress    *FileProgress `json:"progress,omitempty"`
	Result      *FileResult   `json:"result,omitempty"`
	// Code and Message tell, in a list or of a job that has failed without a result, why.
	Code    Code   `json:"error_code,omitempty"`
	Message string `json:"message,omitempty"`
}

// FileJobList is a page of them, newest first.
type FileJobList struct {
	Items []FileJob `json:"items"`
}
