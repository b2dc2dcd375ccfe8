package badinput

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/e2e/stack"
	"github.com/weir-dev/weir/gpuexec/gguf"
)

// models are files that are no usable models.
func models(t *testing.T) map[string]string {
	t.Helper()
	dir := t.TempDir()
	var b bytes.Buffer
	if err := gguf.WritePreset(&b, "tiny"); err != nil {
		t.Fatal(err)
	}
	good := b.Bytes()
	out := map[string]string{}
	write := func(name string, content []byte) {
		path := filepath.Join(dir, name+".gguf")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		out[name] = path
	}
	write("good", good)
	write("empty", nil)
	write("text", []byte("once upon a time"))
	write("head", good[:40])
	write("names", good[:len(good)/50])
	write("data", good[:len(good)-100])
	write("version", append(append([]byte("GGUF"), 99, 0, 0, 0), good[8:]...))
	write("arch", bytes.ReplaceAll(renamed(good), []byte("llama."), []byte("zzama.")))
	return out
}

// renamed changes the architecture that a model names.
func renamed(good []byte) []byte {
	key := []byte("general.architecture")
	at := bytes.Index(good, key) + len(key)
	at += bytes.Index(good[at:], []byte("llama"))
	out := bytes.Clone(good)
	copy(out[at:], "zzama")
	return out
}

// TestModels: a model that cannot be used ends the start and the doctor's check.
func TestModels(t *testing.T) {
	files := models(t)
	says := map[string][]string{
		"empty": {"empty"}, "text": {"not a GGUF file"}, "head": {"truncated"}, "names": {"truncated"}, "data": {"truncated"}, "version": {"version 99"},
		"arch": {"zzama"},
	}
	engines := []string{"go"}
	if stack.Libraries() != "" {
		engines = append(engines, "llama")
	}
	for name, want := range says {
		for i, engine := range engines {
			if i > 0 && name != "arch" && name != "data" {
				continue // the header is read by the same code
			}
			for _, command := range [...]string{"up", "doctor"} {
				c := Start{
					Name: name + " " + engine + " " + command, Args: []string{command, "--engine", engine, "--model", files[name], "--ctx", "512", "--slots", "2"},
					Code: 1, Says: append(want, filepath.Base(files[name])),
				}
				t.Run(c.Name, func(t *testing.T) {
					t.Parallel()
					try(t, c)
				})
			}
		}
	}
}

func try(t *testing.T, c Start) {
	t.Helper()
	if err := c.Try(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestFlags: flags that ask for what is not there.
func TestFlags(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	null := func(more ...string) []string { return append([]string{"up", "--engine", "null"}, more...) }
	for _, c := range []Start{
		{Name: "no libraries", Args: []string{"up", "--engine", "llama"}, Env: []string{"WEIR_LLAMA_LIB=/nonexistent"}, Code: 1, Says: []string{"make engine", "--engine go", "/nonexistent"}},
		{Name: "empty libraries", Args: []string{"up", "--engine", "llama", "--llama-lib", t.TempDir(), "--model", models(t)["good"], "--ctx", "512"}, Code: 1, Says: []string{"make engine", "libllama"}},
		{Name: "no calibration", Args: []string{"up", "--engine", "sim", "--calib", "/nonexistent.json"}, Code: 2, Says: []string{"/nonexistent.json"}},
		{Name: "unknown engine", Args: []string{"up", "--engine", "steam"}, Code: 1, Says: []string{"steam", "auto, llama, go"}},
		{Name: "no model", Args: []string{"up", "--engine", "go", "--model", "/nonexistent.gguf"}, Code: 1, Says: []string{"/nonexistent.gguf"}},
		{Name: "a folder as model", Args: []string{"up", "--engine", "go", "--model", t.TempDir()}, Code: 1, Says: []string{"folder"}},
		{Name: "context beyond the model's", Args: []string{"up", "--engine", "go", "--model", models(t)["good"], "--ctx", "40000"}, Code: 2, Says: []string{"40000", "32768"}},
		{Name: "no context", Args: null("--ctx", "5"), Code: 2, Says: []string{"--ctx is 5"}},
		{Name: "size without sense", Args: null("--kv-mem", "lots"), Code: 2, Says: []string{"512MiB"}},
		{Name: "negative size", Args: null("--kv-mem", "-5GiB"), Code: 2, Says: []string{"size"}},
		{Name: "more memory than there is", Args: null("--kv-mem", "900TiB"), Code: 1, Says: []string{"bytes free", "--kv-mem"}},
		{Name: "doctor: more memory than there is", Args: []string{"doctor", "--engine", "null", "--kv-mem", "900TiB"}, Code: 1, Says: []string{"--kv-mem"}},
		{Name: "memory smaller than a block", Args: []string{"up", "--engine", "go", "--kv-mem", "1MiB"}, Code: 1, Says: []string{"raise --kv-mem", "1048576"}},
		{Name: "streams that are too small", Args: null("--store-mib", "1"), Code: 2, Says: []string{"--store-mib", "at least"}},
		{Name: "a stream that is none", Args: null("--stream-bytes", "FOO=5000000"), Code: 2, Says: []string{"FOO"}},
		{Name: "one phase only", Args: null("--prefill", "2"), Code: 2, Says: []string{"--mixed"}},
		{Name: "unknown flag", Args: null("--fast"), Code: 2, Says: []string{"--fast"}},
		{Name: "bad address", Args: null("--http", "nowhere"), Code: 1, Says: []string{"--http", "nowhere"}},
		{Name: "a file as folder", Args: null(), Dir: file, Code: 1, Says: []string{file}},
		{Name: "a folder that cannot be", Args: null(), Dir: "/proc/weir", Code: 1, Says: []string{"/proc/weir"}},
		{Name: "NATS that is not there", Args: null("--nats", "nats://127.0.0.1:1", "--ready-wait", "2s"), Code: 1, Says: []string{"127.0.0.1:1", "start it"}},
		{Name: "turn without NATS", Args: []string{"turn", "hi", "--nats", "nats://127.0.0.1:1"}, Code: 1, Says: []string{"127.0.0.1:1", "weir up"}},
		{Name: "turn without text", Args: []string{"turn"}, Code: 2, Says: []string{"TEXT"}},
		{Name: "turn with an absurd number", Args: []string{"turn", "hi", "--temperature", "9"}, Code: 2, Says: []string{"temperature is 9"}},
		{Name: "a role that is none", Args: []string{"roles", "set", "d0", "chef"}, Code: 2, Says: []string{"chef", "prefill"}},
		{Name: "roles without an executor", Args: []string{"roles", "set"}, Code: 2, Says: []string{"arg"}},
		{Name: "dead letters without NATS", Args: []string{"dead", "--nats", "nats://127.0.0.1:1"}, Code: 1, Says: []string{"127.0.0.1:1", "--nats"}},
		{Name: "unknown command", Args: []string{"fly"}, Code: 2, Says: []string{"fly", "weir help"}},
		{Name: "no target", Args: []string{"serve"}, Code: 2, Says: []string{"--target"}},
		{Name: "unknown target", Args: []string{"serve", "--target", "kitchen"}, Code: 2, Says: []string{"kitchen", "router"}},
	} {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			try(t, c)
		})
	}
}

// TestTaken: ports, folders and streams that are somebody else's.
func TestTaken(t *testing.T) {
	t.Parallel()
	s := stack.Start(t, stack.Options{Args: []string{"--engine", "null", "--kv-mem", "16MiB", "--ctx", "512"}})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	null := func(more ...string) []string { return append([]string{"up", "--engine", "null"}, more...) }
	for _, c := range []Start{
		{Name: "HTTP port", Args: null("--http", l.Addr().String()), Code: 1, Says: []string{l.Addr().String(), "in use", "--http"}},
		{Name: "NATS port", Args: null("--nats", l.Addr().String()), Code: 1, Says: []string{l.Addr().String(), "in use", "--nats"}},
		{Name: "KV folder", Args: null("--kv-dir", s.Ready.KVDir), Code: 1, Says: []string{s.Ready.KVDir, "another tier"}},
		{Name: "other streams", Args: null("--nats", s.Ready.NATS, "--store-mib", "64"), Code: 1, Says: []string{"AGENT", "max_bytes", "nats stream edit"}},
	} {
		try(t, c)
	}
	second := Start{Name: "folder", Args: null(), Dir: s.Dir(), Code: 1, Says: []string{s.Dir(), "--dir"}}
	if err := second.Try(t.Context()); err == nil || !strings.Contains(err.Error(), "a process is left") || strings.Contains(err.Error(), "exit code") || strings.Contains(err.Error(), "does not say") {
		t.Errorf("a second stack in %s: %v", s.Dir(), err) // the first one's processes run, and nothing else is wrong
	}
	good(t, s)
}

// TestPlainNATS: a NATS that lacks what weir needs.
func TestPlainNATS(t *testing.T) {
	t.Parallel()
	run := func(o *server.Options) string {
		o.Host, o.Port, o.NoSigs, o.NoLog = "127.0.0.1", server.RANDOM_PORT, true, true
		s, err := server.NewServer(o)
		if err != nil {
			t.Fatal(err)
		}
		go s.Start()
		if !s.ReadyForConnections(10 * time.Second) {
			t.Fatal("NATS does not start")
		}
		t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
		return s.ClientURL()
	}
	none := run(&server.Options{})
	tight := run(&server.Options{JetStream: true, StoreDir: t.TempDir(), JetStreamMaxStore: 64 << 20, JetStreamMaxMemory: 64 << 20})
	short := run(&server.Options{JetStream: true, StoreDir: t.TempDir(), MaxPayload: 64 << 10})
	other := run(&server.Options{JetStream: true, StoreDir: t.TempDir()})
	overlap(t, other)
	for _, command := range [...]string{"up", "doctor"} {
		for _, c := range []Start{
			{Name: "without JetStream", Args: []string{command, "--engine", "null", "--nats", none}, Code: 1, Says: []string{"JetStream", "-js"}},
			{Name: "without room", Args: []string{command, "--engine", "null", "--nats", tight}, Code: 1, Says: []string{"MiB", "raise the limits"}},
			{Name: "with short messages", Args: []string{command, "--engine", "null", "--nats", short}, Code: 1, Says: []string{"max_payload"}},
			{Name: "with a stream in the way", Args: []string{command, "--engine", "null", "--nats", other}, Code: 1, Says: []string{"agent.*.*.*", "another stream"}},
		} {
			c.Name += " " + command
			try(t, c)
		}
	}
}

// overlap makes a stream that takes agents' subjects.
func overlap(t *testing.T, url string) {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "MINE", Subjects: []string{"agent.>"}}); err != nil {
		t.Fatal(err)
	}
}

// TestReadOnly: a folder that cannot be written.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	release, err := Tmpfs(dir, "1m", true)
	if err != nil {
		t.Skipf("mounting a tmpfs needs root and the right to mount: %v", err)
	}
	t.Cleanup(func() {
		if err := release(); err != nil {
			t.Error(err)
		}
	})
	try(t, Start{Name: "read-only", Args: []string{"up", "--engine", "null"}, Dir: dir, Code: 1, Says: []string{dir, "read-only"}})
}

// TestFallback: without libraries the engine "auto" is the Go engine.
func TestFallback(t *testing.T) {
	t.Parallel()
	s := stack.Start(t, stack.Options{
		Args: []string{"--engine", "auto", "--model", models(t)["good"], "--kv-mem", "16MiB", "--ctx", "512"}, Env: []string{"WEIR_LLAMA_LIB=/nonexistent"},
	})
	if s.Ready.Engine != "go" {
		t.Errorf("the engine is %q", s.Ready.Engine)
	}
	good(t, s)
}

// TestLeavesNothing: neither Ctrl-C during the start nor kill -9 of the supervisor
// leaves a process or shared memory.
func TestLeavesNothing(t *testing.T) {
	t.Parallel()
	stack.Build(t) // before the time runs
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	s, err := stack.Launch(ctx, stack.Options{Args: []string{"--engine", "null", "--kv-mem", "16MiB", "--ctx", "512"}})
	if err != nil {
		t.Fatal(err)
	}
	good(t, s)
	if err := syscall.Kill(s.Supervisor(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := s.WaitExit(ctx); err == nil {
		t.Error("the supervisor ended without an error")
	}
	if err := s.Stop(); err != nil { // it looks for what is left
		t.Error(err)
	}
}
