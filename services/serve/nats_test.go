package serve

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// TestOneServerPerStore: a server that starts on a store in use waits for it, and
// gives up with the reason. It was found by killing a supervisor with a stream in
// work and starting again at once: its control process was still ending.
func TestOneServerPerStore(t *testing.T) {
	dir := t.TempDir()
	make1 := func() *host {
		o := Defaults()
		o.Dir, o.NATS = dir, "127.0.0.1:0"
		return &host{o: o, log: slog.New(slog.DiscardHandler), topo: o.Topology(), cancel: func(error) {}}
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	first := make1()
	if err := first.startNATS(ctx); err != nil {
		t.Fatal(err)
	}
	soon, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	refused := make1()
	if err := refused.startNATS(soon); !errors.Is(err, ErrStore) || !strings.Contains(err.Error(), dir) || refused.nats != nil {
		t.Errorf("a second server on the store: %v", err)
	}
	second := make1()
	ended := make(chan error, 1)
	go func() { ended <- second.startNATS(ctx) }()
	first.close()
	if err := <-ended; err != nil {
		t.Errorf("after the first one ended: %v", err)
	}
	second.close()
}
