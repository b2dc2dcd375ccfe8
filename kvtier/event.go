package kvtier

// Origin says which phase computed a block. The two are not bit-equal on every
// engine, so a rebuild within a turn must know which one it has.
type Origin uint8

// The origins of a block.
const (
	OriginPrefill Origin = iota
	OriginDecode         // at least one of its tokens was generated
)

// Block is what a slot table knows of a sealed block.
type Block struct {
	Key    Key
	Parent Key // the spec's root for index 0
	Index  int // position in the chain, from 0
	Origin Origin
}

// EventKind tells what happened to a block.
type EventKind uint8

// The kinds of an Event.
const (
	EventStored  EventKind = iota // the block may be read from here on
	EventEvicted                  // the block is gone
	EventCleared                  // every block of the pool is gone; Block is zero
	EventMoved                    // the block left memory and lies on disk
	EventDropped                  // the block left the disk
)

// String returns the kind as it stands in notices.
func (k EventKind) String() string {
	switch k {
	case EventStored:
		return "stored"
	case EventEvicted:
		return "evicted"
	case EventCleared:
		return "cleared"
	case EventMoved:
		return "moved"
	case EventDropped:
		return "dropped"
	default:
		return "unknown"
	}
}

// Event is one change of what a pool holds. Callers turn runs of them into
// extent notices.
type Event struct {
	Kind EventKind
	Block
}
