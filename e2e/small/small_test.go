package small

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-dev/weir/e2e/stack"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/turns"
)

// start runs a stack of one prefill and one decode executor whose KV memory holds some
// thousand tokens, while sequences may be as long as all of it and more.
func start(t *testing.T) *turns.Client {
	t.Helper()
	path, err := stack.ModelFile("tiny")
	if err != nil {
		t.Fatal(err)
	}
	s := stack.Start(t, stack.Options{Args: []string{
		"--engine", "go", "--model", path, "--prefill", "1", "--decode", "1", "--ctx", "8192", "--slots", "2", "--kv-mem", "1MiB", "--admit=true",
	}})
	c, err := s.Client()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// ask does one turn with about so many tokens of prompt. A turn that is told to come back
// does, until its deadline.
func ask(ctx context.Context, c *turns.Client, session, turn string, tokens int, deadline time.Time) (*schemas.Result, error) {
	content, err := json.Marshal(map[string]string{"role": "user", "content": strings.Repeat(session+" ", tokens/(len(session)+1))})
	if err != nil {
		return nil, err
	}
	most := int64(8)
	for try := 0; ; try++ {
		req := &schemas.Turn{Weir: schemas.TurnMeta{Turn: fmt.Sprintf("%s-%d", turn, try), DeadlineNS: deadline.UnixNano(), IgnoreEOS: true}}
		req.Messages, req.MaxTokens = []json.RawMessage{content}, &most
		r, err := once(ctx, c, session, req)
		if err != nil || r.Failure == nil || r.Failure.Code != schemas.CodeBusy || try == 50 {
			return r, err
		}
		if r.Failure.RetryNS <= 0 || r.Failure.Message == "" {
			return r, fmt.Errorf("a refusal does not say when to come back, or why: %+v", r.Failure)
		}
		select {
		case <-time.After(min(time.Duration(r.Failure.RetryNS), time.Until(deadline))):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func once(ctx context.Context, c *turns.Client, session string, req *schemas.Turn) (*schemas.Result, error) {
	st, err := c.Publish(ctx, turns.Request{Session: session, Turn: req})
	var late *turns.FailureError
	if errors.As(err, &late) {
		return &schemas.Result{Status: schemas.StatusFailed, Failure: &late.Failure}, nil
	}
	if err != nil {
		return nil, err
	}
	defer st.Close()
	for {
		ev, err := st.Next(ctx)
		if err != nil {
			return nil, err
		}
		if ev.Result != nil {
			return ev.Result, nil
		}
	}
}

// margin is what a turn may take beyond its deadline on a busy machine.
const margin = 30 * time.Second

// TestLarger: a session larger than all KV memory is answered: it is let in alone, and
// computes again what memory cannot hold.
func TestLarger(t *testing.T) {
	c := start(t)
	begun := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for i := range 2 {
		r, err := ask(ctx, c, "large", fmt.Sprint("u", i), 6000, begun.Add(2*time.Minute))
		if err != nil || r.Status != schemas.StatusOK {
			t.Fatalf("turn %d: %v %+v", i, err, r)
		}
		if r.Usage.Cached > r.Usage.Prompt/2 {
			t.Errorf("turn %d: %d of %d tokens were found: the session fits", i, r.Usage.Cached, r.Usage.Prompt)
		}
		t.Logf("%d tokens of prompt, %d found, after %s", r.Usage.Prompt, r.Usage.Cached, time.Since(begun).Round(time.Millisecond))
	}
}

// TestDeadlines: with many sessions that each would fill the memory, every turn ends by its
// deadline, answered, refused or late, and says so.
func TestDeadlines(t *testing.T) {
	c := start(t)
	deadline := time.Now().Add(8 * time.Second)
	ctx, cancel := context.WithDeadline(t.Context(), deadline.Add(margin))
	defer cancel()
	var mu sync.Mutex
	codes := map[string]int{}
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			r, err := ask(ctx, c, fmt.Sprintf("s%02d", i), "u", 4000, deadline)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				t.Errorf("s%02d: %v", i, err)
			case r.Status == schemas.StatusOK:
				codes["ok"]++
			case r.Failure == nil || r.Failure.Message == "" || r.Failure.Code != schemas.CodeDeadline && r.Failure.Code != schemas.CodeBusy:
				t.Errorf("s%02d: %+v", i, r.Failure)
			default:
				codes[r.Failure.Code]++
			}
		})
	}
	wg.Wait()
	t.Logf("%v", codes)
	if codes["ok"] == 0 {
		t.Errorf("nobody got an answer: %v", codes)
	}
}
