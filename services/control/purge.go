package control

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/streams"
	"github.com/weir-dev/weir/streams/jsrun"
)

// The AGENT stream refuses new turns when it is full. What a snapshot of lineage
// holds is not needed there any more, so it is purged when the stream is this full.
const (
	purgeAbove = 0.7
	purgeEvery = 5 * time.Second
)

// purge keeps room in AGENT until ctx ends. Failures are tried again: at worst the
// stream refuses, which callers are told.
func purge(ctx context.Context, cfg Config, js jetstream.JetStream, snaps *jsrun.Snapshots) {
	t := time.NewTicker(purgeEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if n, err := purgeOnce(ctx, js, snaps); err != nil && ctx.Err() == nil {
			cfg.Logger.Warn("AGENT not purged", "error", err)
		} else if n > 0 {
			cfg.Logger.Info("AGENT purged of what the snapshot holds", "up_to", n)
		}
	}
}

// purgeOnce returns the sequence up to which it purged, 0 when there was no need.
func purgeOnce(ctx context.Context, js jetstream.JetStream, snaps *jsrun.Snapshots) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	s, err := js.Stream(ctx, streams.Agent)
	if err != nil {
		return 0, err
	}
	info := s.CachedInfo()
	if float64(info.State.Bytes) < purgeAbove*float64(info.Config.MaxBytes) {
		return 0, nil
	}
	seqs, err := snaps.Seqs(ctx, lineageActor, lineageShard)
	if err != nil || seqs[streams.Agent] < info.State.FirstSeq {
		return 0, err
	}
	upTo := seqs[streams.Agent]
	return upTo, s.Purge(ctx, jetstream.WithPurgeSequence(upTo+1))
}
