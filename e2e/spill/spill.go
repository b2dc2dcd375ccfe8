// Package spill runs a stack whose KV memory is smaller than what its sessions need, with
// a disk below it: a session that was evicted finds its prompt on disk.
package spill

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/weir-dev/weir/e2e/stack"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/turns"
)

// Outcome is what the last turn of the evicted session yielded.
type Outcome struct {
	Prompt, Cached int
	Tokens         []int32
	TTFT           time.Duration
	// DiskBytes is what lay in the disk's folder then.
	DiskBytes int64
}

// Share is the part of the prompt that was found.
func (o *Outcome) Share() float64 { return float64(o.Cached) / float64(max(1, o.Prompt)) }

// The sizes of a run: a session's first prompt has some 1,500 tokens, 12 MiB of KV in the
// default model.
const (
	promptBytes = 4000
	others      = 5
	runWait     = 3 * time.Minute
)

// Run lets one session take a turn, then others, then the first one again. mem is the KV
// memory; disk is a folder, empty for none. Memory goes by last use, so that the first
// session leaves it as a whole.
func Run(ctx context.Context, engine, mem, disk string) (o *Outcome, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, runWait, fmt.Errorf("it did not end within %s", runWait))
	defer cancel()
	path, err := stack.ModelFile("small")
	if err != nil {
		return nil, err
	}
	args := []string{"--engine", engine, "--model", path, "--mixed", "1", "--ctx", "4096", "--slots", "1", "--kv-mem", mem, "--kv-order", "lru"}
	if disk != "" {
		args = append(args, "--kv-disk", disk, "--kv-disk-bytes", "256MiB")
	}
	s, err := stack.Launch(ctx, stack.Options{Args: args})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	c, err := s.Client()
	if err != nil {
		return nil, err
	}
	msgs := []json.RawMessage{message("user", text("first"))}
	r, err := ask(ctx, c, "evicted", msgs)
	if err != nil {
		return nil, errors.Join(err, errors.New(s.Logs(10)))
	}
	for i := range others {
		if _, err := ask(ctx, c, fmt.Sprintf("other-%d", i), []json.RawMessage{message("user", text(fmt.Sprint("other", i)))}); err != nil {
			return nil, errors.Join(err, errors.New(s.Logs(10)))
		}
	}
	said := r.Message
	if len(said) == 0 {
		said = message("assistant", r.Text)
	}
	msgs = append(msgs, said, message("user", "Go on."))
	if r, err = ask(ctx, c, "evicted", msgs); err != nil {
		return nil, errors.Join(err, errors.New(s.Logs(10)))
	}
	o = &Outcome{Prompt: r.Usage.Prompt, Cached: r.Usage.Cached, Tokens: slices.Clone(r.Tokens), TTFT: time.Duration(r.Timing.TTFTNS)}
	if disk != "" {
		o.DiskBytes, err = bytesIn(disk)
	}
	return o, err
}

func message(role, text string) json.RawMessage {
	b, err := json.Marshal(map[string]string{"role": role, "content": text})
	if err != nil {
		panic(err) // strings have a JSON form
	}
	return b
}

func text(seed string) string {
	var b strings.Builder
	for i := 0; b.Len() < promptBytes; i++ {
		fmt.Fprintf(&b, "%s line %d of the log says that all is well. ", seed, i)
	}
	return b.String()
}

func ask(ctx context.Context, c *turns.Client, session string, msgs []json.RawMessage) (*schemas.Result, error) {
	most, zero := int64(8), 0.0
	req := &schemas.Turn{Body: schemas.Body{MaxTokens: &most, Temperature: &zero, Messages: msgs}}
	st, err := c.Publish(ctx, turns.Request{Session: session, Turn: req})
	if err != nil {
		return nil, err
	}
	defer st.Close()
	r, err := turns.Collect(ctx, st, nil)
	if err != nil {
		return nil, err
	}
	if r.Failure != nil {
		return nil, fmt.Errorf("session %s: %s", session, r.Failure.Message)
	}
	return r, nil
}

// bytesIn sums the files below a folder, one level deep: one folder per node.
func bytesIn(dir string) (n int64, err error) {
	nodes, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	for _, node := range nodes {
		files, err := os.ReadDir(dir + "/" + node.Name())
		if err != nil {
			return 0, err
		}
		for _, f := range files {
			info, err := f.Info()
			if err != nil {
				return 0, err
			}
			n += info.Size()
		}
	}
	return n, nil
}
