package evict

import (
	"context"
	"fmt"
	"io"

	"github.com/weir-dev/weir/e2e/show"
	"github.com/weir-dev/weir/kvtier/replay"
	"github.com/weir-dev/weir/kvtier/workload"
)

// learning is how much of a load the credit has to learn in before its losses count.
const learning = 0.3

// HintCase is one kind of bad hints.
type HintCase struct {
	Fault    workload.Fault `json:"fault"`
	P        float64        `json:"p"`
	Seed     uint64         `json:"seed"`
	Capacity int64          `json:"capacity"` // tokens
	LRU      float64        `json:"lru"`      // hit rates after learning
	Weir     float64        `json:"weir"`
	Loss     float64        `json:"loss_points"`       // LRU's less weir's, in points, after learning
	Whole    float64        `json:"loss_points_whole"` // the same over the whole load
	// LearnS is after how many seconds of the load the rest of it loses at most one
	// point; negative when it never does.
	LearnS float64 `json:"learn_s"`
}

// BadHints replays churn whose agents say the wrong with probability 0.1, 0.5 and 1, in
// three ways, and measures what that loses against LRU. The figures are
// evict.badhints.loss_points, the worst of all cases after learning, and
// evict.badhints.learn_s, the longest time to learn.
func BadHints(ctx context.Context, o Options) ([]show.Figure, []HintCase, error) {
	o = o.filled(3e6)
	var cases []HintCase
	for _, seed := range o.Seeds {
		for _, f := range workload.Faults() {
			for _, p := range []float64{0.1, 0.5, 1} {
				cases = append(cases, HintCase{Fault: f, P: p, Seed: seed})
			}
		}
	}
	out := make([][]HintCase, len(cases))
	err := each(ctx, len(cases), func(i int) (err error) {
		out[i], err = badHints(o, cases[i])
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	worst, longest := 0.0, 0.0
	cases = cases[:0]
	for _, cs := range out {
		for _, c := range cs {
			cases = append(cases, c)
			if worst = max(worst, c.Loss); c.LearnS < 0 || longest < 0 {
				longest = -1
			} else {
				longest = max(longest, c.LearnS)
			}
		}
	}
	return []show.Figure{
		{Name: "evict.badhints.loss_points", Value: worst, Unit: "points"},
		{Name: "evict.badhints.learn_s", Value: longest, Unit: "s"},
	}, cases, nil
}

// badHints replays one kind at all capacities.
func badHints(o Options, c HintCase) ([]HintCase, error) {
	s, err := o.schedule(c.Seed)
	if err != nil {
		return nil, err
	}
	if s, err = workload.Distort(s, c.Fault, c.P, c.Seed); err != nil {
		return nil, err
	}
	l, err := replay.Record(s, replay.Explicit)
	if err != nil {
		return nil, fmt.Errorf("hints %s with %g: %w", c.Fault, c.P, err)
	}
	at := lookTimes(l)
	var out []HintCase
	for _, capacity := range o.Capacities {
		lru, err := replay.Run(l, replay.LRU, capacity)
		if err != nil {
			return nil, err
		}
		weir, err := replay.Run(l, replay.Weir, capacity)
		if err != nil {
			return nil, err
		}
		if len(lru.Looks) != len(at) || len(weir.Looks) != len(at) {
			return nil, fmt.Errorf("evict: %d prompts, %d and %d were looked up", len(at), len(lru.Looks), len(weir.Looks))
		}
		c.Capacity = capacity
		c.judge(at, lru.Looks, weir.Looks)
		out = append(out, c)
	}
	return out, nil
}

// lookTimes are the seconds at which a log looks prompts up.
func lookTimes(l *replay.Log) (at []float64) {
	for i := range l.Ops {
		if l.Ops[i].Kind == replay.OpStart {
			at = append(at, float64(l.Ops[i].At-l.Ops[0].At)/1e9)
		}
	}
	return at
}

// judge fills in the losses of two replays of one load.
func (c *HintCase) judge(at []float64, lru, weir []replay.Look) {
	n := len(at)
	var in, a, b int64 // of the prompts from i on
	c.LearnS = -1
	learned := true
	for i := n - 1; i >= 0; i-- {
		in, a, b = in+int64(lru[i].In), a+int64(lru[i].Found), b+int64(weir[i].Found)
		loss := 100 * float64(a-b) / float64(in)
		// The last tenth is too short a rest to judge by.
		if i <= n*9/10 {
			if learned = learned && loss <= 1; learned {
				c.LearnS = at[i]
			}
		}
		if i == int(learning*float64(n)) {
			c.LRU, c.Weir, c.Loss = float64(a)/float64(in), float64(b)/float64(in), loss
		}
		if i == 0 {
			c.Whole = loss
		}
	}
}

// WriteHints prints the cases.
func WriteHints(w io.Writer, cases []HintCase) error {
	text := fmt.Sprintf("%-10s%6s%6s%10s%8s%8s%8s%8s%9s\n", "fault", "p", "seed", "capacity", "lru", "weir", "loss", "whole", "learned")
	for _, c := range cases {
		text += fmt.Sprintf("%-10s%6g%6d%10s%8.4f%8.4f%8.2f%8.2f%7.0f s\n", c.Fault, c.P, c.Seed, millions(c.Capacity), c.LRU, c.Weir, c.Loss, c.Whole, c.LearnS)
	}
	_, err := io.WriteString(w, text)
	return err
}
