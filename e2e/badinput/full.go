package badinput

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/e2e/stack"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
)

// Full is what came of storage that ran full.
type Full struct {
	Acked int      // acknowledged turns
	Lost  []string // those without exactly one good result
	Notes []string // what was seen on the way, one line per stage
}

// RunFull runs the scenarios with full streams and, where a filesystem can be
// mounted, with a full disk. len(Lost) is the figure full.lost.
func RunFull(ctx context.Context) (*Full, error) {
	out := &Full{}
	err := FullStreams(ctx, out)
	if err == nil {
		err = FullDisk(ctx, out)
		if errors.Is(err, ErrNoMount) {
			out.Notes = append(out.Notes, "full disk: skipped, "+err.Error())
			err = nil
		}
	}
	return out, err
}

// ErrNoMount: no filesystem can be mounted here, so no disk can be filled.
var ErrNoMount = errors.New("mounting a small filesystem needs root")

// stage is one way to fill storage of a running stack.
type stage struct {
	name string
	run  func(ctx context.Context, s *stack.Stack, l *Ledger) (note string, err error)
}

// FullStreams fills the streams of one stack, one after the other.
func FullStreams(ctx context.Context, out *Full) error {
	limits := fmt.Sprintf("%s=%d,%s=%d,%s=%d,%s=%d", streams.Agent, 8<<20, streams.Ready, 2<<20, streams.Result, 2<<20, streams.PayloadStream, 2<<20)
	s, err := stack.Launch(ctx, stack.Options{Args: []string{"--engine", "null", "--ctx", "32768", "--kv-mem", "64MiB", "--stream-bytes", limits}})
	if err != nil {
		return err
	}
	return runStages(ctx, s, out, []stage{{"READY full", readyFull}, {"RESULT full", resultFull}, {"PAYLOAD full", payloadFull}, {"AGENT full", agentFull}})
}

// runStages runs stages on a stack, stops it, and counts what was lost. No process
// may end on the way but those named by mayEnd.
func runStages(ctx context.Context, s *stack.Stack, out *Full, stages []stage, mayEnd ...string) error {
	var errs []error
	bus, err := NewBus(s)
	if err != nil {
		return errors.Join(err, s.Stop())
	}
	defer bus.Close()
	l := NewLedger(bus)
	for _, st := range stages {
		stCtx, cancel := context.WithTimeout(ctx, 2*time.Minute)
		note, err := st.run(stCtx, s, l)
		if err == nil {
			err = goodTurn(stCtx, s)
		}
		cancel()
		out.Notes = append(out.Notes, st.name+": "+note)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w\n%s", st.name, err, s.Logs(15)))
			break
		}
	}
	errs = append(errs, l.read(ctx))
	out.Acked += l.Acked()
	out.Lost = append(out.Lost, l.Lost()...)
	lines, err := Crashes(s)
	errs = append(errs, err)
	for _, line := range lines {
		errs = append(errs, fmt.Errorf("a log tells of a crash: %s", line))
	}
	for _, e := range s.Events() {
		if e.Event == "ended" && !slices.Contains(mayEnd, e.ID) {
			errs = append(errs, fmt.Errorf("%s ended: %s", e.ID, e.Cause))
		}
	}
	return errors.Join(append(errs, s.Stop())...)
}

// goodTurn tries until a turn over HTTP is answered: a stack that was in trouble
// may ask to come again.
func goodTurn(ctx context.Context, s *stack.Stack) error {
	t := time.NewTicker(pollEvery)
	defer t.Stop()
	for {
		o := post(ctx, s.Ready.HTTP, "", chat("")())
		if o.Code == Answered {
			return nil
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return fmt.Errorf("no good turn works any more: %s %s", o.Code, o.Text)
		}
	}
}

// pressed checks that the gateway asks to come again later.
func pressed(ctx context.Context, s *stack.Stack, body []byte) error {
	o, h := postHeaders(ctx, s.Ready.HTTP, "", body)
	if o.Status != http.StatusTooManyRequests && o.Status != http.StatusServiceUnavailable || h.Get("Retry-After") == "" {
		return fmt.Errorf("the gateway answers %d %s %q with Retry-After %q, want 429 or 503 and a time", o.Status, o.Code, o.Text, h.Get("Retry-After"))
	}
	return nil
}

// readyFull stops the executors until no more rendered turns fit.
func readyFull(ctx context.Context, s *stack.Stack, l *Ledger) (string, error) {
	if err := signal(s, syscall.SIGSTOP, "p0", "d0"); err != nil {
		return "", err
	}
	for range 60 {
		if err := l.Publish(ctx, tokens(30_000, 4)); err != nil {
			return "", err
		}
	}
	err := until(ctx, l.bus, streams.Ready, func(si *jetstream.StreamInfo) bool { return si.State.Bytes > uint64(si.Config.MaxBytes)*9/10 })
	if err != nil {
		return "", err
	}
	if err := signal(s, syscall.SIGCONT, "p0", "d0"); err != nil {
		return "", err
	}
	began := time.Now()
	err = l.Wait(ctx, nil)
	return fmt.Sprintf("60 turns acknowledged, answered %s after the executors went on", time.Since(began).Round(time.Millisecond)), err
}

// resultFull lets results fill their stream, and makes room again and again.
func resultFull(ctx context.Context, _ *stack.Stack, l *Ledger) (string, error) {
	for range 60 {
		if err := l.Publish(ctx, tokens(10, 6000)); err != nil {
			return "", err
		}
	}
	// One that is refused, whose result has no place either.
	if err := until(ctx, l.bus, streams.Result, func(si *jetstream.StreamInfo) bool { return si.State.Bytes > uint64(si.Config.MaxBytes)*9/10 }); err != nil {
		return "", err
	}
	rooms, still, last := 0, 0, -1
	err := l.Wait(ctx, func(missing int) error {
		if still++; missing != last {
			still, last = 0, missing
		}
		if still < 10 {
			return nil
		}
		still = 0
		rooms++
		return l.forget(ctx)
	})
	if err == nil && rooms == 0 {
		err = errors.New("the stream never held results up")
	}
	return fmt.Sprintf("60 turns acknowledged, room made %d times", rooms), err
}

// payloadFull fills the bucket of large bodies.
func payloadFull(ctx context.Context, s *stack.Stack, l *Ledger) (string, error) {
	n, refused := 0, Outcome{}
	for ; n < 40 && refused.Code == ""; n++ {
		body := fmt.Appendf(nil, `{"messages":[{"role":"user","content":%q}],"max_tokens":1}`, noise(300<<10, n))
		if o := post(ctx, s.Ready.HTTP, "", body); o.Code != schemas.CodeTooLong && o.Code != Answered {
			refused = o
			if err := pressed(ctx, s, body); err != nil {
				return "", err
			}
		}
	}
	if refused.Code == "" {
		return "", errors.New("40 bodies of 300 KiB fit")
	}
	st, err := l.bus.JS.Stream(ctx, streams.PayloadStream)
	if err == nil {
		err = st.Purge(ctx)
	}
	return fmt.Sprintf("body %d is refused with %d %s", n, refused.Status, refused.Code), err
}

// noise is text that does not compress well.
func noise(n, seed int) string {
	b := make([]byte, n)
	x := uint64(seed)*0x9E3779B97F4A7C15 + 1
	for i := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = byte('0' + x%75)
		if b[i] == '\\' {
			b[i] = ' '
		}
	}
	return string(b)
}

// agentFull publishes until the stream of turns refuses, and makes room by raising
// its limit, as an operator does.
func agentFull(ctx context.Context, s *stack.Stack, l *Ledger) (string, error) {
	before := l.Acked()
	body := []byte(`{"messages":[{"role":"user","content":"hi"}],"max_tokens":4,"user":"` + strings.Repeat("u", 200_000) + `"}`)
	var full error
	for range 200 {
		if full = l.Publish(ctx, body); full != nil {
			break
		}
	}
	var api *jetstream.APIError
	if !errors.As(full, &api) {
		return "", fmt.Errorf("the stream of turns did not refuse: %w", full)
	}
	if err := pressed(ctx, s, []byte(`{"messages":[{"role":"user","content":"`+strings.Repeat("hi ", 60_000)+`"}]}`)); err != nil {
		return "", err
	}
	err := resize(ctx, l.bus, streams.Agent, 2)
	if err == nil {
		err = l.Wait(ctx, nil)
	}
	return fmt.Sprintf("%d turns acknowledged, then %q", l.Acked()-before, api.Description), err
}

// resize changes the limit of a stream by a factor.
func resize(ctx context.Context, b *Bus, name string, factor int64) error {
	st, err := b.JS.Stream(ctx, name)
	if err != nil {
		return err
	}
	cfg := st.CachedInfo().Config
	cfg.MaxBytes *= factor
	_, err = b.JS.UpdateStream(ctx, cfg)
	return err
}

// until polls a stream's state.
func until(ctx context.Context, b *Bus, name string, ok func(*jetstream.StreamInfo) bool) error {
	t := time.NewTicker(pollEvery)
	defer t.Stop()
	for {
		st, err := b.JS.Stream(ctx, name)
		if err == nil && ok(st.CachedInfo()) {
			return nil
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			if err == nil {
				err = fmt.Errorf("it holds %d of %d bytes", st.CachedInfo().State.Bytes, st.CachedInfo().Config.MaxBytes)
			}
			return fmt.Errorf("stream %s: %w: %w", name, context.Cause(ctx), err)
		}
	}
}

// FullDisk runs a stack whose store is on a small filesystem, which something else
// fills, and frees it again.
func FullDisk(ctx context.Context, out *Full) error {
	dir, err := os.MkdirTemp("", "weir-fulldisk-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	store := filepath.Join(dir, "nats")
	if err := os.Mkdir(store, 0o750); err != nil {
		return err
	}
	release, err := Tmpfs(store, "96m", false)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoMount, err)
	}
	defer func() { _ = release() }() // the folder goes next, which would tell
	s, err := stack.Launch(ctx, stack.Options{Dir: dir, Args: []string{"--engine", "null", "--ctx", "2048", "--kv-mem", "16MiB"}})
	if err != nil {
		return err
	}
	return runStages(ctx, s, out, []stage{{"disk full", func(ctx context.Context, s *stack.Stack, l *Ledger) (string, error) {
		return diskFull(ctx, s, l, filepath.Join(store, "somebody-elses-file"))
	}}}, "control") // it ends once, to start NATS anew
}

// diskFull fills the disk while turns are in work, kills the process that runs NATS
// too, and frees the disk.
func diskFull(ctx context.Context, s *stack.Stack, l *Ledger, hog string) (string, error) {
	if err := signal(s, syscall.SIGSTOP, "p0", "d0"); err != nil {
		return "", err
	}
	for range 20 {
		if err := l.Publish(ctx, tokens(100, 8)); err != nil {
			return "", err
		}
	}
	if err := fill(hog); err != nil {
		return "", err
	}
	// From here on no result finds a place.
	if err := signal(s, syscall.SIGCONT, "p0", "d0"); err != nil {
		return "", err
	}
	if err := refused(ctx, l); err != nil {
		return "", err
	}
	if err := pressed(ctx, s, chat("")()); err != nil {
		return "", err
	}
	if err := signal(s, syscall.SIGKILL, "control"); err != nil {
		return "", err
	}
	if err := os.Remove(hog); err != nil {
		return "", err
	}
	began, acked := time.Now(), l.Acked()
	err := l.Wait(ctx, nil)
	if err == nil {
		err = goodTurn(ctx, s)
	}
	return fmt.Sprintf("%d turns acknowledged; %s after there was room a turn is answered", acked, time.Since(began).Round(time.Millisecond)), err
}

func signal(s *stack.Stack, sig syscall.Signal, ids ...string) error {
	for _, id := range ids {
		if _, err := s.Kill(id, sig); err != nil {
			return err
		}
	}
	return nil
}

// refused publishes until turns are not acknowledged any more. A server with a full
// disk does not answer; what counts is that it does not acknowledge either.
func refused(ctx context.Context, l *Ledger) error {
	n := 0
	for range 40 {
		short, cancel := context.WithTimeout(ctx, time.Second)
		if l.Publish(short, tokens(1500, 8)) != nil {
			n++
		}
		cancel()
		if n == 3 {
			return nil
		}
	}
	return errors.New("a full disk refused no turn")
}

// fill writes a file until its disk is full.
func fill(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	for n := 1 << 20; n >= 1; n /= 4 {
		for {
			if _, err = f.Write(make([]byte, n)); err != nil {
				break
			}
		}
		if !errors.Is(err, syscall.ENOSPC) {
			return errors.Join(err, f.Close())
		}
	}
	return f.Close()
}
