package streams

import (
	"strconv"
	"strings"

	"github.com/weir-dev/weir/schemas"
)

// Partitions is the number of partitions of AGENT. Lineage shards take whole
// partitions, so it bounds their number; it cannot change on a live stream.
const Partitions = 64

// Partition is the partition of a session. It is what the server's mapping
// {{partition(64,1,2)}} yields: 32-bit FNV-1a over the two tokens put together.
func Partition(tenant, session string) int {
	h := uint32(2166136261)
	for _, s := range [...]string{tenant, session} {
		for i := range len(s) {
			h = (h ^ uint32(s[i])) * 16777619
		}
	}
	return int(h % Partitions)
}

// StoredSubject is the subject under which a message lies in its stream: that of
// an AGENT message has the partition behind the root, all others are unchanged.
func StoredSubject(subject string) string {
	root, rest, _ := strings.Cut(subject, ".")
	if root != string(schemas.RootAgent) || strings.Count(rest, ".") != 2 {
		return subject
	}
	tenant, tail, _ := strings.Cut(rest, ".")
	session, _, _ := strings.Cut(tail, ".")
	return "agent." + strconv.Itoa(Partition(tenant, session)) + "." + rest
}

// PartitionFilter is the filter of one partition of AGENT.
func PartitionFilter(p int) string { return "agent." + strconv.Itoa(p) + ".*.*.*" }
