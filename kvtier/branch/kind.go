package branch

import "github.com/weir-dev/weir/schemas"

// Role says who an item of a context comes from.
type Role uint8

// The roles. System covers the system prompt and the tool definitions.
const (
	System Role = iota
	User
	Assistant
	Tool
)

// Item is one element of a context, commonly a message.
type Item struct {
	Digest [16]byte // of the canonical content; equal digests are equal items
	Size   int      // in tokens or bytes, one unit per forest; negative counts as 0
	Role   Role
	Media  bool // holds an image or another medium
}

// maxSize is what a larger Item.Size counts as, so that sums cannot overflow.
const maxSize = 1 << 40

func (it *Item) size() int { return min(max(it.Size, 0), maxSize) }

// Kind says what a request is to the session.
type Kind string

// The kinds.
const (
	// First: the session holds no context yet.
	First Kind = "first"
	// Continue: the request extends the whole context of a branch.
	Continue Kind = "continue"
	// Fork: the request shares a conversation with a branch that goes on.
	Fork Kind = "fork"
	// Retry: the request repeats the last prompt without the answer to it.
	Retry Kind = "retry"
	// SubAgent: a new conversation that shares at most system prompt and tools
	// with the others.
	SubAgent Kind = "sub_agent"
	// Compaction: the branch's context became much shorter.
	Compaction Kind = "compaction"
	// Rewrite: an earlier item of the branch's context changed, or its end was
	// taken back; the size is similar.
	Rewrite Kind = "rewrite"
	// Pruned: media or tool results in the branch's context were replaced by
	// smaller items or left out; the other items are the same in the same order.
	Pruned Kind = "pruned"
)

// Request is the context that a turn sends.
type Request struct {
	At    int64 // arrival, in ns; no rule reads it, the order of calls is what counts
	Items []Item
	Hint  schemas.TurnHint
	// Foreign: the answer that it quotes behind a busy branch's context is not that
	// branch's, as far as the caller knows.
	Foreign bool
}

// Placement is what Place decided.
type Placement struct {
	Branch string // the branch that the request goes on
	New    bool   // the branch is a new one, named by fresh
	Kind   Kind
	// Parent is the branch that a new one forked from, or the likeliest starter of
	// a sub-agent; "" when there is none or the branch is not new.
	Parent string
	// Kept is how many leading items the request shares with the context of the
	// branch placed on, or of Parent when the branch is new.
	Kept int
	// Dropped is how many items of the branch's context are dead now: neither in
	// the request nor part of any other branch's context. 0 for a new branch.
	Dropped int
	// KeptSize and DroppedSize are the same in units of Item.Size.
	KeptSize, DroppedSize int
	// Revived is how many leading items of the request stood in a superseded
	// context and are live again. 0 when the live contexts share as many.
	Revived int
}
