package route

// Chooser picks executors in the manner of another system. Both methods get the
// executors that a turn fits on, in order of their names, and return the index of one,
// or -1 for none. One that has no room is waited for. Neither keeps xs.
type Chooser interface {
	Prefill(t Need, xs []Candidate) int
	Decode(t Need, xs []Candidate) int
}

// Need is what a turn asks for. Blocks are of 64 tokens.
type Need struct {
	Job    string
	Tokens int // of the prompt
	Blocks int // whole ones of it
	MaxNew int // most tokens to generate
}

// Candidate is one executor, as far as a router knows it.
type Candidate struct {
	ID   string
	Room bool // it can take the turn now
	// PrefillTokens are placed here to be computed; DecodeBlocks are those of the
	// prompts that decode here or have a slot kept, Requests how many turns that are, and
	// those that prefill.
	// Turns that wait for one are not in its PrefillTokens: whoever chose it knows them.
	PrefillTokens int
	DecodeBlocks  int
	Requests      int
	// Device, Host and Disk: leading blocks of the turn's prompt in the engine, in its
	// node's memory beyond those, and on disk beyond both.
	Device, Host, Disk int
}

// chosen asks the chooser about the turn in view. near, when given, must use the same memory.
func (r *Router) chosen(t *turn, n need, near *executor) *executor {
	r.candidates, r.choices = r.candidates[:0], r.choices[:0]
	for _, x := range t.in.xs {
		if !x.takes[n] || !x.open() || !x.fits(t) || near != nil && x.at != near.at && !r.cfg.Handover {
			continue
		}
		c := Candidate{ID: x.id, Room: x.room[n], PrefillTokens: x.tokens, DecodeBlocks: (x.contexts + x.coming) / blockTokens, Requests: len(x.prefills) + len(x.decodes)}
		c.Device = r.keeps(x)
		c.Host = max(0, r.have(x)-c.Device)
		r.candidates, r.choices = append(r.candidates, c), append(r.choices, x)
	}
	if len(r.choices) == 0 {
		return nil
	}
	want := Need{Job: t.ready.Job, Tokens: t.ready.Prompt.N, Blocks: t.whole(), MaxNew: t.ready.MaxNew}
	i := 0
	if n == needDecode {
		i = r.cfg.Choose.Decode(want, r.candidates)
	} else {
		i = r.cfg.Choose.Prefill(want, r.candidates)
	}
	if i < 0 || i >= len(r.choices) || n == needDecode && !r.candidates[i].Room {
		return nil
	}
	return r.choices[i]
}
