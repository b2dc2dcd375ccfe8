package up

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/weir-dev/weir/gpuexec/simgpu"
	"github.com/weir-dev/weir/services/serve"
)

const (
	// speedPings are publishes from which the bus's latency is taken.
	speedPings = 50
	// speedShare is how much of the shortest step of a simulated device the bus may take,
	// at the speed asked for: more, and what is measured is the bus.
	speedShare = 0.02
)

// checkSpeed refuses a speed of simulated devices at which the bus, which does not get
// faster, would be a part of every step. Real time is always allowed.
func (s *stack) checkSpeed(ctx context.Context) error {
	d, err := s.o.SimDevice()
	if err != nil || d == nil || d.Speed <= 1 {
		return err
	}
	bus, err := s.busLatency(ctx)
	if err != nil {
		return fmt.Errorf("measuring the bus for --speed: %w", err)
	}
	step := simgpu.ShortestStep(d.Cal)
	most := speedShare * float64(step) / float64(bus)
	if d.Speed < most {
		return nil
	}
	return fmt.Errorf("%w: --speed %g is too much here: a publish takes %s (p99 of %d), which is %.1f %% of the shortest step of %s, %s / %g; it must stay below %g %%. At most --speed %s",
		serve.ErrUsage, d.Speed, bus.Round(time.Microsecond), speedPings, 100*float64(bus)*d.Speed/float64(step), d.Cal.ID, step.Round(10*time.Microsecond), d.Speed, 100*speedShare, allowed(most))
}

// allowed names the highest speed below most, and the one that is always allowed.
func allowed(most float64) string {
	if most*0.99 <= 1 {
		return "1"
	}
	return fmt.Sprintf("%.3g, or 1", most*0.99)
}

// busLatency is the 99th percentile of publishes to a memory stream, each until it is
// acknowledged.
func (s *stack) busLatency(ctx context.Context) (_ time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	js, err := jetstream.New(s.nc)
	if err != nil {
		return 0, err
	}
	name := "PING_" + nuid.Next()
	st, err := js.CreateStream(ctx, jetstream.StreamConfig{
		Name: name, Subjects: []string{"ping." + name}, Storage: jetstream.MemoryStorage, MaxMsgs: 1, MaxAge: time.Minute, MaxConsumers: 1,
	})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, js.DeleteStream(ctx, st.CachedInfo().Config.Name)) }()
	body := make([]byte, 512)
	took := make([]time.Duration, 0, speedPings)
	for range speedPings {
		begun := time.Now()
		if _, err := js.Publish(ctx, "ping."+name, body); err != nil {
			return 0, err
		}
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	return took[len(took)*99/100], nil
}
