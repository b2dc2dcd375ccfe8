package route

// bounds are checked after every step: invariant 8, and the router's own books.
func (w *world) bounds() {
	if len(w.r.turns) > len(w.turns) || w.r.waiting > len(w.r.turns) {
		w.t.Fatalf("%d turns, %d waiting, of %d", len(w.r.turns), w.r.waiting, len(w.turns))
	}
	w.queues()
	gives := map[*tierNode]int{}
	for _, t := range w.r.turns {
		for _, n := range t.gives {
			gives[n]++
		}
	}
	for _, n := range w.r.dir.list {
		if n.gives != gives[n] || n.gives > w.r.cfg.MaxGives {
			w.t.Fatalf("node %s gives %d times, %d turns say so", n.id, n.gives, gives[n])
		}
	}
	for _, x := range w.r.execs {
		tokens := 0
		for _, t := range x.prefills {
			tokens += t.charged
		}
		decoding, holds, coming := 0, 0, 0
		for _, t := range x.decodes {
			if t.exec == x {
				decoding, holds = decoding+1, holds+t.ready.Prompt.N
			} else {
				coming += t.ready.Prompt.N
			}
		}
		exports := 0
		for _, t := range w.r.turns {
			if t.export == x {
				exports += t.ready.Prompt.N
			}
		}
		if exports != x.exports {
			w.t.Fatalf("%s: %d tokens wait in its engine, the books say %d", x.id, exports, x.exports)
		}
		if coming != x.coming {
			w.t.Fatalf("%s: %d tokens are to come, the books say %d", x.id, coming, x.coming)
		}
		if decoding != x.decoding || holds != x.contexts {
			w.t.Fatalf("%s: %d decodes with %d tokens in the books, %d with %d there", x.id, x.decoding, x.contexts, decoding, holds)
		}
		if tokens != x.tokens {
			w.t.Fatalf("%s: %d tokens in the books, %d in its jobs", x.id, x.tokens, tokens)
		}
		if x.reserved != nil && x.reserved.keeps != x {
			w.t.Fatalf("%s is kept for %s, which does not know it", x.id, x.reserved.ready.Turn)
		}
		for job, t := range x.decodes {
			if w.r.turns[job] != t || t.exec != x && t.decodeOn != x {
				w.t.Fatalf("%s: a slot is taken by %s, which is not there", x.id, t.ready.Turn)
			}
		}
	}
}

// queues checks that every waiting turn stands in one place, and that what the pool
// counts of its executors is so.
func (w *world) queues() {
	seen := map[*turn]bool{}
	note := func(t *turn) {
		if t.state != stateWaiting || w.r.turns[t.ready.Job] != t || seen[t] {
			w.t.Fatalf("%s waits in state %d, twice %v", t.ready.Turn, t.state, seen[t])
		}
		seen[t] = true
	}
	for _, p := range w.r.pools {
		var rooms, takers [needs]int
		for n := range p.queue {
			h := &p.queue[n]
			for i, t := range h.ts {
				note(t)
				if t.queue != h || t.listed || t.pos[byKey] != i+1 || i > 0 && h.less(i, (i-1)/2) {
					w.t.Fatalf("%s is not where its queue says", t.ready.Turn)
				}
			}
		}
		for _, t := range p.held.ts {
			note(t)
			if !t.held || t.queue != nil || t.listed {
				w.t.Fatalf("%s is held and waits elsewhere", t.ready.Turn)
			}
		}
		for _, l := range p.list {
			for _, t := range l {
				note(t)
				if !t.listed || t.queue != nil {
					w.t.Fatalf("%s is on a list and does not know it", t.ready.Turn)
				}
			}
		}
		pins := 0
		for _, x := range p.xs {
			tokens := 0
			for _, t := range x.wait.ts {
				note(t)
				if t.pin != x || t.queue != nil || t.listed {
					w.t.Fatalf("%s waits for %s and elsewhere", t.ready.Turn, x.id)
				}
				pins, tokens = pins+1, tokens+t.queued
			}
			if tokens != x.pinned {
				w.t.Fatalf("%s: %d tokens wait for it, the books say %d", x.id, tokens, x.pinned)
			}
			room, takes := w.r.able(x)
			if room != x.room || takes != x.takes {
				w.t.Fatalf("%s can %v of %v, the books say %v of %v", x.id, room, takes, x.room, x.takes)
			}
			for n := range needs {
				if room[n] {
					rooms[n]++
				}
				if takes[n] {
					takers[n]++
				}
			}
		}
		if pins != p.pins {
			w.t.Fatalf("%d turns wait for one executor, the books say %d", pins, p.pins)
		}
		if rooms != p.rooms || takers != p.takers {
			w.t.Fatalf("pool %s: %v have room of %v, the books say %v of %v", p.name, rooms, takers, p.rooms, p.takers)
		}
	}
	if len(seen) != w.r.waiting {
		w.t.Fatalf("%d turns wait, the books say %d", len(seen), w.r.waiting)
	}
}
