package schemas

// Medium is where a block lies.
type Medium string

// The media.
const (
	MediumDevice Medium = "device"
	MediumHost   Medium = "host"
	MediumDisk   Medium = "disk"
)

// KVNotice tells what changed in one medium of one node, on kv.<cell>.<node>.
// Notices of one node and epoch are numbered from 1; a receiver that misses one
// asks on sync.<node> once and goes on from the reply's Seq.
type KVNotice struct {
	Header
	Node    string   `json:"node"`
	Epoch   uint64   `json:"epoch"`
	Seq     uint64   `json:"seq"`
	Medium  Medium   `json:"medium"`
	Stored  []Extent `json:"stored,omitempty"`
	Evicted []Extent `json:"evicted,omitempty"`
	Moved   []Extent `json:"moved,omitempty"`
	Cleared bool     `json:"cleared,omitempty"`
	// Peer is where the node gives blocks to other nodes, host:port; empty when it
	// gives none.
	Peer string `json:"peer,omitempty"`
}

// Check reports the first bad field.
func (n *KVNotice) Check() error {
	if n.Medium != MediumDevice && n.Medium != MediumHost && n.Medium != MediumDisk {
		return bad("medium is %q", n.Medium)
	}
	return CheckID("node", n.Node)
}

// Source says where blocks of a prompt can be had when the node that runs it lacks
// them: another node's memory.
type Source struct {
	Node   string `json:"node"`
	Peer   string `json:"peer"` // its address, host:port
	Extent Extent `json:"extent"`
}

// SyncRequest asks a node for all that it holds, in pages, on sync.<node>.
type SyncRequest struct {
	Header
	Page int `json:"page"`
}

// Check reports the first bad field.
func (r *SyncRequest) Check() error {
	if r.Page < 0 {
		return bad("page is %d", r.Page)
	}
	return nil
}

// SyncReply lists sealed extents in memory, then those that lie on disk alone, and the
// notice sequence they are valid at.
type SyncReply struct {
	Header
	Node    string   `json:"node"`
	Epoch   uint64   `json:"epoch"`
	Seq     uint64   `json:"seq"`
	Extents []Extent `json:"extents,omitempty"`
	Disk    []Extent `json:"disk,omitempty"`
	More    bool     `json:"more,omitempty"`
	Peer    string   `json:"peer,omitempty"` // as in KVNotice
}

// Check reports the first bad field.
func (r *SyncReply) Check() error { return CheckID("node", r.Node) }

// BranchState is where a branch stands; it decides how soon its blocks go.
type BranchState string

// The states.
const (
	BranchRunning     BranchState = "running"
	BranchToolWaiting BranchState = "tool-waiting"
	BranchUserWaiting BranchState = "user-waiting"
	BranchSuperseded  BranchState = "superseded"
	BranchEnded       BranchState = "ended"
)

// BranchChange is one state change of one branch, on branch.<cell>.<node>, sent
// to nodes that hold blocks of it.
type BranchChange struct {
	Header
	Tenant   string      `json:"tenant"`
	Session  string      `json:"session"`
	Branch   string      `json:"branch"`
	State    BranchState `json:"state"`
	Tail     Extent      `json:"tail,omitzero"` // the context as one extent; of a running branch the whole prompt, computed or not
	Tool     string      `json:"tool,omitempty"`
	ResumeNS int64       `json:"resume_ns,omitempty"` // expected Unix time of the next turn
	Inferred bool        `json:"inferred,omitempty"`
	// Why is the event or inference behind the change: turn, result, tool_wait,
	// fork, sub_agent, retry, compaction, rewrite, pruned, decay, session_end …
	Why  string `json:"why,omitempty"`
	AtNS int64  `json:"at_ns"`
	// Keep is how many leading blocks of Tail's chain the next prompt is expected to
	// repeat, when it is fewer than all: the rest is reasoning that the template drops.
	Keep int `json:"keep,omitempty"`
	// QueueNS is how long the turn that was answered had waited from READY until an
	// engine began to work on it; 0 when that is not known.
	QueueNS int64 `json:"queue_ns,omitempty"`
}

// Check reports the first bad field.
func (b *BranchChange) Check() error {
	switch b.State {
	case BranchRunning, BranchToolWaiting, BranchUserWaiting, BranchSuperseded, BranchEnded:
		return CheckID("session", b.Session)
	}
	return bad("state is %q", b.State)
}
