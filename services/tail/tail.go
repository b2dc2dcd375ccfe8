// Package tail reads streams for commands that people wait for: the last message of
// each subject, or all since a time, with an end or without one.
package tail

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Message is one stored message.
type Message struct {
	Subject string
	Seq     uint64
	At      time.Time // when it was stored
	Data    []byte
}

// Take gets one message after the other, in stream order; false ends the reading.
type Take func(m Message) bool

// fetchMax bounds one pull, fetchWait how long it waits for what is known to be there.
const (
	fetchMax  = 256
	fetchWait = 2 * time.Second
)

// Last reads the last message of each subject that the filters name.
func Last(ctx context.Context, js jetstream.JetStream, stream string, take Take, filters ...string) error {
	return read(ctx, js, stream, jetstream.OrderedConsumerConfig{FilterSubjects: filters, DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy}, take)
}

// Since reads what the stream has now from a time on; the zero time means all.
func Since(ctx context.Context, js jetstream.JetStream, stream string, from time.Time, take Take, filters ...string) error {
	return read(ctx, js, stream, since(from, filters), take)
}

func since(from time.Time, filters []string) jetstream.OrderedConsumerConfig {
	c := jetstream.OrderedConsumerConfig{FilterSubjects: filters, DeliverPolicy: jetstream.DeliverAllPolicy}
	if !from.IsZero() {
		c.DeliverPolicy, c.OptStartTime = jetstream.DeliverByStartTimePolicy, &from
	}
	return c
}

func consumer(ctx context.Context, js jetstream.JetStream, stream string, c jetstream.OrderedConsumerConfig) (jetstream.Consumer, error) {
	cons, err := js.OrderedConsumer(ctx, stream, c)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, fmt.Errorf("stream %s does not exist: no weir has run on this NATS", stream)
	}
	return cons, err
}

func read(ctx context.Context, js jetstream.JetStream, stream string, c jetstream.OrderedConsumerConfig, take Take) error {
	cons, err := consumer(ctx, js, stream, c)
	if err != nil {
		return err
	}
	info, err := cons.Info(ctx)
	if err != nil {
		return err
	}
	for left := info.NumPending; left > 0; {
		n, more, err := fetch(cons, int(min(left, fetchMax)), take)
		if err != nil || !more || n == 0 {
			return err
		}
		left -= min(left, uint64(n))
	}
	return nil
}

// Follow reads from a time on until ctx ends or take has enough.
func Follow(ctx context.Context, js jetstream.JetStream, stream string, from time.Time, take Take, filters ...string) error {
	cons, err := consumer(ctx, js, stream, since(from, filters))
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		if _, more, err := fetch(cons, 1, take); err != nil || !more {
			return err
		}
	}
	return nil
}

// fetch hands on up to n messages.
func fetch(cons jetstream.Consumer, n int, take Take) (got int, more bool, err error) {
	batch, err := cons.Fetch(n, jetstream.FetchMaxWait(fetchWait))
	if err != nil {
		return 0, false, err
	}
	more = true
	for m := range batch.Messages() {
		out := Message{Subject: m.Subject(), Data: m.Data()}
		if md, err := m.Metadata(); err == nil {
			out.Seq, out.At = md.Sequence.Stream, md.Timestamp
		}
		got++
		more = more && take(out)
	}
	return got, more, batch.Error()
}
