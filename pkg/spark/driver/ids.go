package driver

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
)

// idsDomain keeps the hashes apart from any other use of SHA-256 over the same
// texts. Ids are for ever: another derivation needs another domain.
const idsDomain = "flint.dev/ids/v1"

// DeriveIDs gives the ids of the submission id in the namespace: the same pair gives
// the same ids, on every instance, for ever.
//
// The shapes are Spark's: a v4 UUID without dashes behind "spark-" for the
// application, 16 hexadecimal digits for each KubernetesUtils.uniqueID, a v4 UUID for
// the local directory. Each is 64 or 122 bits of its own hash, so none tells another.
func DeriveIDs(namespace, submissionID string) IDs {
	derive := func(purpose string) [sha256.Size]byte {
		return sha256.Sum256(lengthPrefixed(idsDomain, namespace, submissionID, purpose))
	}
	unique := func(purpose string) string {
		sum := derive(purpose)
		return hex.EncodeToString(sum[:8])
	}
	application := uuid(derive("app"))
	local := uuid(derive("local-dir"))
	return IDs{
		App:       "spark-" + hex.EncodeToString(application[:]),
		Prefix:    unique("prefix"),
		ConfigMap: unique("config-map"),
		Service:   unique("service"),
		LocalDir:  fmt.Sprintf("%x-%x-%x-%x-%x", local[:4], local[4:6], local[6:8], local[8:10], local[10:]),
	}
}

// lengthPrefixed joins the texts so that no two lists give the same bytes: each has its
// length before it, as eight bytes.
func lengthPrefixed(texts ...string) []byte {
	var joined []byte
	for _, text := range texts {
		joined = binary.BigEndian.AppendUint64(joined, uint64(len(text)))
		joined = append(joined, text...)
	}
	return joined
}

// uuid is the first half of a hash with the version and variant bits of a random (v4) UUID.
func uuid(sum [sha256.Size]byte) (id [16]byte) {
	copy(id[:], sum[:])
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	return id
}
