package infer

import (
	"fmt"

	"github.com/weir-dev/weir/e2e/show"
)

// count compares what was inferred of one kind of event with its labels.
type count struct {
	labels   int // events that the labels know
	inferred int // events that were inferred
	right    int // inferred events that a label confirms
	found    int // labelled events that were inferred
}

// see counts one place where an event was inferred, labelled, or both.
func (c *count) see(inferred, labelled bool) {
	if labelled {
		c.labels++
	}
	if inferred {
		c.inferred++
	}
	if inferred && labelled {
		c.right++
		c.found++
	}
}

// figures of one kind; none without labels, and no precision where nothing was
// inferred.
func (c count) figures(kind string) []show.Figure {
	if c.labels == 0 {
		return nil
	}
	out := []show.Figure{
		{Name: "infer." + kind + ".labels", Value: float64(c.labels), Unit: "events"},
		{Name: "infer." + kind + ".recall", Value: float64(c.found) / float64(c.labels), Unit: "ratio"},
	}
	if c.inferred > 0 {
		out = append(out, show.Figure{Name: "infer." + kind + ".precision", Value: float64(c.right) / float64(c.inferred), Unit: "ratio"})
	}
	return out
}

func (c count) String() string {
	return fmt.Sprintf("labels %d inferred %d right %d found %d", c.labels, c.inferred, c.right, c.found)
}
