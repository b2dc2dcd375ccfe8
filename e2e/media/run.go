package media

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/e2e/show"
	"github.com/weir-dev/weir/e2e/stack"
	"github.com/weir-dev/weir/streams"
)

const (
	// steps of the session, and how many screenshots its agent keeps.
	steps = 40
	keep  = 3
)

// Outcome is what a run found.
type Outcome struct {
	Distinct int64 // bytes of all distinct images that were sent
	Stored   int64 // bytes of the bucket
	Sent     int64 // bytes of all requests of the session
	Prompt   int   // prompt tokens of the session's turns
	Cached   int   // of those, found
	Pairs    []*outcome
	Took     time.Duration // of the session
}

// Crossed are the pairs in which a block with another image was taken.
func (o *Outcome) Crossed() (names []string) {
	for _, p := range o.Pairs {
		if p.crossed() {
			names = append(names, fmt.Sprintf("%s: %d tokens found, at most %d are of equal images", p.pair.name, p.cached, p.most))
		}
	}
	return names
}

// NotFound are the pairs in which an equal prefix was not found.
func (o *Outcome) NotFound() (names []string) {
	for _, p := range o.Pairs {
		if !p.found() {
			names = append(names, fmt.Sprintf("%s: %d tokens found of %d", p.pair.name, p.cached, p.least))
		}
	}
	return names
}

// Figures are the measured values.
func (o *Outcome) Figures() []show.Figure {
	return []show.Figure{
		{Name: "media.stored_ratio", Value: float64(o.Stored) / float64(o.Distinct), Unit: "ratio"},
		{Name: "media.cross_hits", Value: float64(len(o.Crossed())), Unit: "pairs"},
		{Name: "media.pairs", Value: float64(len(o.Pairs)), Unit: "pairs"},
		{Name: "media.session_cached_share", Value: float64(o.Cached) / float64(max(o.Prompt, 1)), Unit: "share"},
		{Name: "media.session_seconds", Value: o.Took.Seconds(), Unit: "s"},
	}
}

// Run runs a stack, the session and the pairs. The error says what would make the
// figures worthless, such as equal images that are not found again: then that others
// are not found either shows nothing.
func Run(ctx context.Context) ([]show.Figure, error) {
	o, err := Try(ctx)
	if err != nil {
		return nil, err
	}
	if bad := o.NotFound(); len(bad) > 0 {
		err = fmt.Errorf("equal images were not found again: %v", bad)
	}
	return o.Figures(), err
}

// Try is one run.
func Try(ctx context.Context) (o *Outcome, err error) {
	ctx, cancel := context.WithTimeout(ctx, 4*time.Minute)
	defer cancel()
	s, err := stack.Launch(ctx, stack.Options{Args: []string{"--engine", "null", "--null-vision", "--ctx", "32768", "--kv-mem", "512MiB"}})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	nc, err := s.Connect("e2e-media")
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	o = &Outcome{}
	if err := o.session(ctx, s.Ready.HTTP); err != nil {
		return nil, err
	}
	st, err := js.Stream(ctx, streams.PayloadStream)
	if err != nil {
		return nil, err
	}
	o.Stored = int64(st.CachedInfo().State.Bytes)
	for _, p := range pairs() {
		one, err := p.try(ctx, nc, s.Ready.HTTP, s.Ready.Model)
		if err != nil {
			return nil, fmt.Errorf("pair %s: %w", p.name, err)
		}
		o.Pairs = append(o.Pairs, one)
	}
	return o, nil
}

// session is the computer-use session. Every tenth screenshot is one that was there
// before: the screen did not change.
func (o *Outcome) session(ctx context.Context, url string) error {
	began := time.Now()
	a := newAgent(url, "computer-use", keep)
	seen := map[string]bool{}
	for i := range uint64(steps) {
		seed := i
		if i%10 == 9 {
			seed = i - 1
		}
		b := shot(seed)
		if sum := hexSum(b); !seen[sum] {
			seen[sum] = true
			o.Distinct += int64(len(b))
		}
		r, err := a.step(ctx, b)
		if err != nil {
			return fmt.Errorf("step %d: %w", i+1, err)
		}
		o.Sent += int64(r.sent)
		o.Prompt += r.Usage.Prompt
		o.Cached += r.Usage.Details.Cached
	}
	o.Took = time.Since(began)
	return nil
}

func hexSum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
