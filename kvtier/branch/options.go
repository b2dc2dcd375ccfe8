package branch

// Options bound a forest and set its thresholds. The zero value is usable.
type Options struct {
	// MaxBranches is how many branches are kept; beyond it the branches that were
	// unused longest are forgotten. Default 16,384.
	MaxBranches int
	// MaxItems is how many items the tree holds; shared prefixes count once. Beyond
	// it superseded contexts and then whole branches are forgotten, oldest first.
	// Default 1<<20, about 40 MB.
	MaxItems int
	// MaxContext is how many items of one context are compared; the rest of a
	// longer one is not looked at. Default 65,536.
	MaxContext int
	// MaxPast is how many superseded contexts are kept for each branch, so that a
	// return to one of them is recognised. Default 4, negative is none.
	MaxPast int
	// Drop is how much shorter than before a context must be, in units of
	// Item.Size, to be called a compaction whatever the ratio. Default 65,536, the
	// detector of TraceLab in tokens; in bytes 262,144 is about the same.
	Drop int
}

func (o Options) withDefaults() Options {
	def := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&o.MaxBranches, 16384)
	def(&o.MaxItems, 1<<20)
	def(&o.MaxContext, 65536)
	def(&o.Drop, 65536)
	if o.MaxPast == 0 {
		o.MaxPast = 4
	}
	o.MaxPast = max(o.MaxPast, 0)
	return o
}
