package simup_test

import (
	"context"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/weir-dev/weir/e2e/stack"
	"github.com/weir-dev/weir/gpuexec/simgpu"
	"github.com/weir-dev/weir/schemas/calib"
)

func device(t *testing.T) *calib.Calibration {
	t.Helper()
	c, err := calib.Parse(simgpu.RoundNumbers())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestTimes: a turn on a live stack takes the time that the device's calibration says, in
// each phase, and no shorter.
func TestTimes(t *testing.T) {
	s := stack.Start(t, stack.Options{Args: []string{
		"--engine", "sim", "--prefill", "1", "--decode", "1", "--ctx", "65536", "--slots", "8", "--kv-mem", "64MiB", "--planner", "off",
	}})
	cal := device(t)
	out, err := exec.Command(stack.Build(t), "turn", strings.Repeat("lorem ipsum ", 2000), "--nats", s.Ready.NATS, "--max-tokens", "101", "-o", "json").Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var r struct {
		Prompt int `json:"prompt_tokens"`
		Timing struct {
			Prefill int64 `json:"prefill_ns"`
			Spans   []struct {
				S    string `json:"s"`
				A, B int64
			} `json:"spans"`
		} `json:"timing"`
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &r); err != nil {
		t.Fatal(err)
	}
	var prefill, decode time.Duration
	for at := 0; at < (r.Prompt-1)/64*64; at += 8192 {
		d, err := cal.PrefillStep([]calib.Chunk{{Tokens: min(8192, (r.Prompt-1)/64*64-at), Prefix: at}})
		if err != nil {
			t.Fatal(err)
		}
		prefill += d
	}
	if decode, err = cal.DecodeRun(1, float64(r.Prompt), 101); err != nil {
		t.Fatal(err)
	}
	got := map[string]time.Duration{}
	for _, span := range r.Timing.Spans {
		got[span.S] += time.Duration(span.B - span.A)
	}
	for stage, want := range map[string]time.Duration{"prefill": prefill, "decode": decode} {
		// A busy machine is late, but a device is never early.
		if got[stage] < want-want/50 || got[stage] > 3*want+20*time.Second {
			t.Errorf("%s of %d tokens took %s, the device takes %s", stage, r.Prompt, got[stage], want)
		}
	}
}

// TestTooFast: a speed at which the bus takes a part of every step is refused, with the
// figures and with one that works.
func TestTooFast(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, stack.Build(t), "up", "--engine", "sim", "--speed", "10000", "--dir", t.TempDir(), "--nats", "127.0.0.1:0", "--http", "127.0.0.1:0", "--kv-mem", "16MiB")
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 2 {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{"--speed 10000 is too much here", "p99 of 50", "round-numbers", "At most --speed"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the refusal lacks %q: %s", want, out)
		}
	}
}
