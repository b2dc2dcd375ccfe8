package kvtier

// Class says how much a block is still needed. Smaller classes go first.
type Class uint8

// The classes, in the order in which they go.
const (
	ClassDead    Class = iota // its context was replaced or its branch ended: nobody comes back
	ClassIdle                 // no live branch needs it, as far as one knows
	ClassWaiting              // its branch waits for a tool or a user and is expected back
	ClassRunning              // its branch computes: never evicted
)

// String returns the class as it stands in metrics and events.
func (c Class) String() string {
	switch c {
	case ClassDead:
		return "dead"
	case ClassIdle:
		return "idle"
	case ClassWaiting:
		return "waiting"
	case ClassRunning:
		return "running"
	default:
		return "unknown"
	}
}

// BranchID names a branch in a table of slots; the caller gives out the numbers,
// from 1, and does not give one out again while blocks may remember it.
type BranchID uint32
