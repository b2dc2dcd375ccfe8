package serve

import (
	"context"

	"github.com/nats-io/nats.go"

	"github.com/weir-dev/weir/planner/demand"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/control"
	"github.com/weir-dev/weir/services/record"
)

// What --planner may be.
const (
	PlannerAct    = "act"
	PlannerAdvise = "advise"
	PlannerOff    = "off"
)

func (o *Options) checkPlanner(bad func(string, ...any)) {
	switch o.Planner {
	case PlannerAct, PlannerAdvise, PlannerOff:
	default:
		bad("--planner is %q, allowed are %s, %s and %s", o.Planner, PlannerAct, PlannerAdvise, PlannerOff)
	}
	if o.Record != "" && o.RecordBytes < 1<<20 {
		bad("--record-bytes is %d, at least 1MiB is needed", o.RecordBytes)
	}
}

// recorder opens the folder of recordings once for this process.
func (h *host) recorder() (*record.Recorder, error) {
	if h.o.Record == "" || h.record != nil {
		return h.record, nil
	}
	var err error
	h.record, err = record.New(record.Options{Dir: h.o.Record, Bytes: h.o.RecordBytes, Weir: Version(), Logger: h.log})
	return h.record, err
}

// startPlanner runs the planner of the cell. Asked for by --target, it runs also with
// --planner off, paused to advice: the flag is for `weir up`, which then names no target.
func (h *host) startPlanner(ctx context.Context, nc *nats.Conn) error {
	cfg := h.control(nc)
	cfg.Mode = schemas.ModeAct
	if h.o.Planner != PlannerAct {
		cfg.Mode = schemas.ModeAdvise
	}
	dev, err := h.o.SimDevice()
	if err != nil {
		return err
	}
	if dev != nil {
		// The planner of a simulated cell knows the same.
		cfg.Work = demand.FromCalibration(dev.Cal).Faster(dev.Speed)
	}
	if cfg.Record, err = h.recorder(); err != nil {
		return err
	}
	cfg = h.observed(cfg, "planner")
	h.goRun(ctx, "planner", func(ctx context.Context) error { return control.Planner(ctx, cfg) })
	return nil
}
