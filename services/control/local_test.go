package control

import (
	"strings"
	"testing"
	"time"

	"github.com/weir-dev/weir/schemas"
)

// TestQueueFull: a queue has an end, the operation behind it fails at once as
// "try again later", the other queue is not touched, and what was taken is done.
func TestQueueFull(t *testing.T) {
	seen := 0
	l := &local{
		ctx: t.Context(), renders: newWorkers("rendering"), reads: newWorkers("reading"),
		cfg: Config{OnOp: func(string, *schemas.Op, time.Time, *schemas.OpDone) { seen++ }},
	}
	ended := make(chan schemas.OpDone, queueMax+1)
	done := func(d schemas.OpDone) { ended <- d }
	unknown := func(id uint64) *schemas.Op { return &schemas.Op{ID: id} } // needs no bus, and is read's
	for id := range uint64(queueMax) {
		l.do(unknown(id), done)
	}
	if len(ended) != 0 {
		t.Fatalf("%d operations ended before a worker ran", len(ended))
	}
	l.do(unknown(queueMax), done)
	select {
	case d := <-ended:
		if d.ID != queueMax || d.Code != schemas.CodeBusy || !strings.Contains(d.Err, "full") {
			t.Errorf("operation %d ended with %q, %q", d.ID, d.Code, d.Err)
		}
	default:
		t.Fatal("the operation that found no room is not told")
	}
	if seen != 1 {
		t.Errorf("%d operations were observed, want the refused one", seen)
	}
	l.do(&schemas.Op{Render: &schemas.RenderOp{}}, done)
	if len(ended) != 0 || len(l.renders.queue) != 1 {
		t.Error("a full queue for reading refuses rendering")
	}
	l.cfg.OnOp = nil
	l.reads.run(t.Context(), readers)
	for range queueMax {
		if d := <-ended; d.Code != "" || d.Err == "" {
			t.Fatalf("operation %d: %q, %q", d.ID, d.Code, d.Err)
		}
	}
}
