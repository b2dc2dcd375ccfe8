package compose

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/turns"
)

// TestEveryService: with the collector running, every service's container is killed
// once while a turn is in work, and the answer is the one that nothing disturbed.
// Then a service is scaled, and the collector has counted spans of all services.
func TestEveryService(t *testing.T) {
	if os.Getenv("WEIR_COMPOSE") != "long" {
		t.Skip("long: `make compose-long` runs it")
	}
	ctx := bounded(t)
	e, env := engine(ctx, t)
	images, err := e.Images(ctx, "collector", "")
	if err != nil {
		t.Fatal(err)
	}
	env = append(append(env, images...), "OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4317")
	p, b := up(ctx, t, e, env, "otel")
	executors(ctx, t, p, b)

	calm := collect(ctx, t, b, turns.Request{Session: "calm", Turn: long("three", 400)}, nil)
	for _, service := range []string{"decode", "prefill", "tier", "lineage", "tokenizer", "router-a", "router-b", "gateway", "collector", "nats"} {
		t.Run(service, func(t *testing.T) { disturbed(ctx, t, p, b, service, calm.Tokens) })
	}
	t.Run("scaled", func(t *testing.T) { scaled(ctx, t, p, b) })
	t.Run("collector counts", func(t *testing.T) {
		traced := schemas.Trace{Parent: sampled(traceNATS)}
		collect(ctx, t, b, turns.Request{Session: "traced", Turn: long("four", 8), Trace: traced}, nil)
		counted(ctx, t, p, []string{"weir-lineage", "weir-router", "weir-executor"})
	})
}

// disturbed kills a service's container during a turn: most of them while tokens
// come, the prefill executor as soon as the turn is published.
func disturbed(ctx context.Context, t *testing.T, p *Project, b *Bus, service string, want schemas.Tokens) {
	ctx, cancel := context.WithTimeout(ctx, 4*time.Minute)
	defer cancel()
	container, err := p.Container(ctx, service)
	if err != nil {
		t.Fatal(err)
	}
	kill := func() error {
		if _, err := p.engine.Docker(ctx, "kill", container); err != nil {
			return err
		}
		_, err := p.engine.Docker(ctx, "start", container)
		return err
	}
	killed := make(chan error, 1)
	req := turns.Request{Session: "without-" + service, Turn: long("three", int64(len(want)))}
	if service == "prefill" {
		go func() { killed <- kill() }()
	}
	hit := service == "prefill"
	r := collect(ctx, t, b, req, func(*turns.Event) error {
		if !hit {
			hit = true
			go func() { killed <- kill() }() // the stream must be read on meanwhile
		}
		return nil
	})
	if err := <-killed; err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, r.Tokens); d != "" {
		t.Errorf("the answer changed (-calm +disturbed):\n%s", d)
	}
	b.Heard()
	executors(ctx, t, p, b)
}

// scaled adds a decode executor and sees that both are used.
func scaled(ctx context.Context, t *testing.T, p *Project, b *Bus) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	if err := p.Up(ctx, "decode=2"); err != nil {
		t.Fatal(err)
	}
	b.Heard()
	ids := executors(ctx, t, p, b)
	if len(ids[schemas.RoleDecode]) != 2 {
		t.Fatalf("executors are %v", ids)
	}
	const n = 12
	var streams []*turns.Stream
	for i := range n {
		s, err := b.Publish(ctx, turns.Request{Session: fmt.Sprintf("scaled-%d", i), Turn: long(fmt.Sprintf("s%d", i), 64)})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		streams = append(streams, s)
	}
	used := map[string]int{}
	for _, s := range streams {
		r, err := turns.Collect(ctx, s, nil)
		if err != nil {
			t.Fatal(err)
		}
		if r.Failure != nil {
			t.Fatalf("turn of session %s failed: %+v", r.Session, *r.Failure)
		}
		used[r.DecodeOn]++
	}
	for _, id := range ids[schemas.RoleDecode] {
		if used[id] == 0 {
			t.Errorf("decode executors did %v of %d turns; %s did none", used, n, id)
		}
	}
}

// counted waits until the collector's metrics name the services.
func counted(ctx context.Context, t *testing.T, p *Project, services []string) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	addr, err := p.Address(ctx, "collector", "8889")
	if err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		text, err := get(ctx, "http://"+addr+"/metrics")
		missing := []string{}
		for _, s := range services {
			if !strings.Contains(text, `service_name="`+s+`"`) {
				missing = append(missing, s)
			}
		}
		if err == nil && len(missing) == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("the collector counted no span of %v: %v\n%.2000s", missing, err, text)
		}
	}
}

func get(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = r.Body.Close() }()
	b, err := io.ReadAll(r.Body)
	return string(b), err
}
