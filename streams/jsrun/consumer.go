package jsrun

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/streams"
)

// occasion is why a consumer is looked at.
type occasion uint8

const (
	atStart occasion = iota // the service starts
	atLoss                  // NATS was away, or the consumer is gone
)

// ensureConsumer makes sure that the input's consumer exists and delivers what
// is needed next. After a loss it is always made anew: what the server sent into
// a dead connection counts as delivered there and would come back only after
// AckWait, or never without acknowledgements.
func (f *feeder) ensureConsumer(ctx context.Context, why occasion) error {
	in := f.in
	st, err := f.js.Stream(ctx, in.cfg.Stream)
	if err != nil {
		return fmt.Errorf("stream %s: %w", in.cfg.Stream, err)
	}
	old, err := st.Consumer(ctx, in.consumer)
	if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return fmt.Errorf("consumer %s of %s: %w", in.consumer, in.cfg.Stream, err)
	}
	var info *jetstream.ConsumerInfo
	if err == nil {
		info = old.CachedInfo()
	}
	if why == atStart && info != nil && in.cfg.Durable != "" && !in.cfg.Recreate && !in.cfg.Resume && f.same(info.Config) {
		return nil
	}
	cfg := f.consumerConfig(why, info)
	if info != nil {
		if err := st.DeleteConsumer(ctx, in.consumer); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			return fmt.Errorf("replacing consumer %s of %s: %w", in.consumer, in.cfg.Stream, err)
		}
	}
	c, err := st.CreateConsumer(ctx, cfg)
	if err != nil {
		return fmt.Errorf("creating consumer %s of %s: %w", in.consumer, in.cfg.Stream, err)
	}
	if cfg.DeliverPolicy == jetstream.DeliverNewPolicy {
		in.sawUpTo(c.CachedInfo().Delivered.Stream)
	}
	if why == atLoss {
		f.stats.Recreated.Add(1)
	}
	return nil
}

// consumerConfig describes the consumer; info is the one it replaces, if any.
func (f *feeder) consumerConfig(why occasion, info *jetstream.ConsumerInfo) jetstream.ConsumerConfig {
	in := f.in
	c := jetstream.ConsumerConfig{
		Name: in.consumer, MaxDeliver: -1, Replicas: in.stream.Replicas,
		MaxWaiting: 16, AckPolicy: jetstream.AckExplicitPolicy, AckWait: in.cfg.AckWait, MaxAckPending: in.cfg.MaxAckPending,
	}
	if in.cfg.Durable != "" {
		c.Durable = in.consumer
	} else {
		c.InactiveThreshold = streams.InactiveAfter
	}
	if in.cfg.Policy == streams.NoAck {
		c.AckPolicy, c.AckWait, c.MaxAckPending = jetstream.AckNonePolicy, 0, 0
		c.MemoryStorage, c.Replicas = true, 1
	}
	switch len(in.cfg.Filters) {
	case 0:
	case 1:
		c.FilterSubject = in.cfg.Filters[0]
	default:
		c.FilterSubjects = in.cfg.Filters
	}
	f.setStart(&c, why, info)
	return c
}

// setStart chooses where the consumer begins.
func (f *feeder) setStart(c *jetstream.ConsumerConfig, why occasion, info *jetstream.ConsumerInfo) {
	in := f.in
	if in.stream.Retention == streams.WorkQueue {
		return // all: acknowledged messages are gone
	}
	from := func(seq uint64) {
		c.DeliverPolicy, c.OptStartSeq = jetstream.DeliverByStartSequencePolicy, max(seq, 1)
	}
	// A consumer that acknowledges knows what is unfinished, whatever the snapshot says.
	floor := uint64(0)
	if info != nil && in.cfg.Policy != streams.NoAck {
		floor = info.AckFloor.Stream + 1
	}
	if at, ok := in.resumeAt(); ok && why == atLoss {
		from(at)
		return
	}
	switch {
	case in.cfg.Resume && f.snapSeq > 0 && floor > 0:
		from(min(f.snapSeq+1, floor))
		return
	case in.cfg.Resume && f.snapSeq > 0:
		from(f.snapSeq + 1)
		return
	case in.cfg.Recreate && floor > 0:
		from(floor)
		return
	}
	switch in.cfg.Deliver {
	case streams.DeliverAll:
	case streams.DeliverNew:
		c.DeliverPolicy = jetstream.DeliverNewPolicy
	case streams.DeliverLastPerSubject:
		c.DeliverPolicy = jetstream.DeliverLastPerSubjectPolicy
	case streams.DeliverFromSeq:
		from(in.cfg.FromSeq)
	}
}

// same reports whether an existing durable consumer can be used as it is.
func (f *feeder) same(have jetstream.ConsumerConfig) bool {
	want := f.consumerConfig(atStart, nil)
	filters := func(c jetstream.ConsumerConfig) []string {
		if c.FilterSubject != "" {
			return []string{c.FilterSubject}
		}
		return c.FilterSubjects
	}
	return have.AckPolicy == want.AckPolicy && have.AckWait == want.AckWait && have.MaxAckPending == want.MaxAckPending &&
		slices.Equal(filters(have), filters(want))
}
