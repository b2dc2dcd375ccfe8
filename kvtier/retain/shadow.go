package retain

// Shadow is what plain LRU would hold now, at the granularity of branches.
type Shadow struct{}

// NewShadow returns a shadow of a cache of capacity blocks that remembers up to
// branches branches, 0 for 65,536.
func NewShadow(capacity, branches int) *Shadow { return &Shadow{} }

// Touch says that branch was used: its context is now blocks long, of which own
// are its own.
func (s *Shadow) Touch(branch string, blocks, own int) {}

// Resident is how many of the branch's own blocks LRU would hold, from the first.
func (s *Shadow) Resident(branch string) int { return 0 }

// Resize changes the capacity, in blocks.
func (s *Shadow) Resize(capacity int) {}
