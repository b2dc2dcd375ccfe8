package jsrun

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
)

// The benchmark's server runs in a process of its own when this is set.
const (
	serveEnv     = "WEIR_BENCH_NATS_DIR"
	serveAddrEnv = "WEIR_BENCH_NATS_ADDR"
)

func TestMain(m *testing.M) {
	dir := os.Getenv(serveEnv)
	if dir == "" {
		os.Exit(m.Run())
	}
	listen := cmp.Or(os.Getenv(serveAddrEnv), "127.0.0.1:0")
	s, err := Embedded(EmbeddedOptions{Dir: dir, Listen: listen, Topology: streams.Topology(streams.Options{})})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(s.ClientURL())
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // until the parent ends
	s.Shutdown()
	s.WaitForShutdown()
}

// step makes an actor of a function.
type step func(now schemas.Time, in *schemas.Msg, out []schemas.Msg) []schemas.Msg

func (f step) Step(now schemas.Time, in *schemas.Msg, out []schemas.Msg) []schemas.Msg {
	return f(now, in, out)
}
func (step) Next() schemas.Time                  { return schemas.Never }
func (step) Snapshot(dst []byte) ([]byte, error) { return dst, nil }
func (step) Restore([]byte) error                { return nil }

// benchLineage turns AGENT into READY.
func benchLineage() step {
	tail := make(schemas.Tokens, 64)
	for i := range tail {
		tail[i] = int32(1000 + i)
	}
	return func(now schemas.Time, in *schemas.Msg, out []schemas.Msg) []schemas.Msg {
		if in.Kind != schemas.KindTurn {
			return out
		}
		s, _ := schemas.ParseSubject(in.Subject)
		tenant, session, turn := s.Get("tenant"), s.Get("session"), in.Turn.Weir.Turn
		return append(out, schemas.Msg{
			Kind: schemas.KindReady, Subject: schemas.ReadySubject("c0", tenant, session, turn), ID: session + "/" + turn,
			Ready: &schemas.Ready{
				Header: schemas.H(), Tenant: tenant, Session: session, Turn: turn, Branch: "main",
				Job: schemas.JobID(tenant, session, turn), Pool: "p", MaxNew: 16, AdmittedNS: int64(now),
				Prompt: schemas.Prompt{N: len(tail), Tail: tail}, Keys: schemas.KeySpec{Model: "m"},
			},
		})
	}
}

// benchRouter turns READY into DECODE and acknowledges at DONE.
func benchRouter() step {
	held := map[string]schemas.Msg{}
	return func(_ schemas.Time, in *schemas.Msg, out []schemas.Msg) []schemas.Msg {
		switch in.Kind {
		case schemas.KindReady:
			r := in.Ready
			held[r.Job] = schemas.Msg{Kind: schemas.KindAck, Subject: in.Subject, Seq: in.Seq}
			out = append(out, schemas.Msg{
				Kind: schemas.KindJob, Subject: schemas.JobSubject(schemas.StageDecode, "c0", "e0", r.Job), ID: r.Job + ":decode:1",
				Job: &schemas.Job{Header: schemas.H(), Stage: schemas.StageDecode, Attempt: 1, Ready: r},
			})
		case schemas.KindDone:
			if a, ok := held[in.Done.Job]; ok {
				delete(held, in.Done.Job)
				out = append(out, a)
			}
		default:
		}
		return out
	}
}

// benchExecutor sends 4 frames, a result and a done per job.
func benchExecutor() step {
	toks := schemas.Tokens{1, 2, 3, 4}
	return func(_ schemas.Time, in *schemas.Msg, out []schemas.Msg) []schemas.Msg {
		if in.Kind != schemas.KindJob {
			return out
		}
		r := in.Job.Ready
		for i := range 4 {
			out = append(out, schemas.Msg{
				Kind: schemas.KindFrame, Core: true, Subject: schemas.OutSubject(r.Tenant, r.Session, r.Turn),
				Frame: &schemas.Frame{Header: schemas.H(), Attempt: 1, First: 4 * i, Tokens: toks, Text: "some text"},
			})
		}
		all := make(schemas.Tokens, 16)
		return append(out, schemas.Msg{
			Kind: schemas.KindResult, Subject: schemas.ResultSubject(r.Tenant, r.Session, r.Turn), ExpectSet: true, ID: r.Job + ":1",
			Result: &schemas.Result{
				Header: schemas.H(), Tenant: r.Tenant, Session: r.Session, Turn: r.Turn, Job: r.Job, Attempt: 1,
				Status: schemas.StatusOK, Tokens: all, Text: "some text some text some text",
			},
		}, schemas.Msg{
			Kind: schemas.KindDone, Subject: schemas.DoneSubject("c0", r.Job),
			Done: &schemas.Done{Header: schemas.H(), Job: r.Job, Attempt: 1, Stage: schemas.StageDecode, Executor: "e0", Outcome: schemas.OutcomeDecoded},
		})
	}
}

func benchServices() []Config {
	return []Config{
		{Name: "lineage", Actor: benchLineage(), Inputs: []streams.Input{{Stream: streams.Agent, Durable: "lineage"}}},
		{Name: "router", Actor: benchRouter(), Inputs: []streams.Input{
			{Stream: streams.Ready, Filters: []string{"ready.c0.>"}, Durable: "router-c0", Policy: streams.Hold, Recreate: true},
			{Stream: streams.Done, Filters: []string{"done.c0.*"}, Policy: streams.NoAck, Deliver: streams.DeliverNew},
		}},
		{Name: "executor", Actor: benchExecutor(), Inputs: []streams.Input{
			{Stream: streams.Decode, Filters: []string{"decode.c0.e0.*"}, Policy: streams.NoAck, Deliver: streams.DeliverNew},
		}},
	}
}

// BenchmarkTurnPath sends b.N turns of 256 sessions through lineage, router and
// executor and waits for their results: 10 publishes and 10 deliveries a turn.
func BenchmarkTurnPath(b *testing.B) { benchBoth(b, 256) }

// BenchmarkTurnLatency is the same with one turn at a time: what the bus adds to
// a turn over four hops.
func BenchmarkTurnLatency(b *testing.B) { benchBoth(b, 1) }

func benchBoth(b *testing.B, window int) {
	b.Run("embedded", func(b *testing.B) {
		s, err := Embedded(EmbeddedOptions{Dir: b.TempDir(), Topology: streams.Topology(streams.Options{})})
		if err != nil {
			b.Fatal(err)
		}
		defer s.WaitForShutdown()
		defer s.Shutdown()
		benchTurns(b, func(name string) *nats.Conn {
			nc, err := Connect(ConnectOptions{Server: s, Name: name})
			if err != nil {
				b.Fatal(err)
			}
			return nc
		}, 0, window)
	})
	b.Run("separate", func(b *testing.B) {
		srv := serveApart(b, b.TempDir(), "")
		defer srv.stop()
		benchTurns(b, func(name string) *nats.Conn {
			nc, err := Connect(ConnectOptions{URL: srv.url, Name: name})
			if err != nil {
				b.Fatal(err)
			}
			return nc
		}, srv.cmd.Process.Pid, window)
	})
}

// apart is a server in a process of its own.
type apart struct {
	url string
	cmd *exec.Cmd
	in  io.Closer
}

// serveApart starts a server process on a store; addr may be empty.
func serveApart(t testing.TB, dir, addr string) *apart {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serveEnv+"="+dir, serveAddrEnv+"="+addr)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return &apart{url: strings.TrimSpace(line), cmd: cmd, in: in}
}

// stop ends the server in order.
func (a *apart) stop() {
	_ = a.in.Close()
	_ = a.cmd.Wait()
}

func benchTurns(b *testing.B, connect func(string) *nats.Conn, serverPID, concurrent int) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	nc := connect("caller")
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(256))
	if err != nil {
		b.Fatal(err)
	}
	if err := Provision(ctx, js, streams.Topology(streams.Options{})); err != nil {
		b.Fatal(err)
	}
	for _, cfg := range benchServices() {
		cfg.Conn = connect(cfg.Name)
		r, err := New(cfg)
		if err != nil {
			b.Fatal(err)
		}
		wg.Go(func() {
			_ = r.Run(ctx)
			cfg.Conn.Close()
		})
		<-r.Ready()
	}
	// Results come on plain subscriptions, as the gateway reads them.
	var results, frames atomic.Int64
	sent := make([]time.Time, b.N)
	took := make([]time.Duration, b.N)
	window := make(chan struct{}, concurrent)
	done := make(chan struct{})
	sub(b, nc, "out.>", func(*nats.Msg) { frames.Add(1) })
	sub(b, nc, "result.>", func(m *nats.Msg) {
		i, _ := strconv.Atoi(m.Subject[strings.LastIndexByte(m.Subject, '.')+2:])
		took[i] = time.Since(sent[i])
		<-window
		if results.Add(1) == int64(b.N) {
			close(done)
		}
	})
	cpu := cpuTime(serverPID)
	b.ResetTimer()
	for i := range b.N {
		window <- struct{}{}
		sent[i] = time.Now()
		turn := fmt.Sprintf("u%d", i)
		subject := schemas.AgentSubject("default", fmt.Sprintf("s%d", i%256), schemas.EventTurn)
		body := fmt.Appendf(nil, `{"weir":{"turn":%q},"model":"m","messages":[{"role":"user","content":"hello"}]}`, turn)
		if _, err := js.PublishAsync(subject, body, jetstream.WithMsgID(turn), jetstream.WithStallWait(20*time.Second)); err != nil {
			b.Fatal(err)
		}
	}
	select {
	case <-done:
	case <-time.After(60 * time.Second):
		b.Fatalf("%d of %d results after a minute", results.Load(), b.N)
	}
	b.StopTimer()
	used := cpuTime(serverPID) - cpu
	sort.Slice(took, func(i, j int) bool { return took[i] < took[j] })
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "turns/s")
	b.ReportMetric(float64(used.Microseconds())/float64(b.N), "cpu-us/turn")
	b.ReportMetric(float64(took[b.N/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[b.N*99/100].Microseconds())/1000, "p99-ms")
}

func sub(b *testing.B, nc *nats.Conn, subject string, f func(*nats.Msg)) {
	b.Helper()
	if _, err := nc.Subscribe(subject, f); err != nil {
		b.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		b.Fatal(err)
	}
}

// cpuTime is the processor time of this process and, with a pid, of the server's.
func cpuTime(pid int) time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	total := time.Duration(u.Utime.Nano() + u.Stime.Nano())
	if pid == 0 {
		return total
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return total
	}
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	ut, _ := strconv.ParseInt(f[11], 10, 64)
	st, _ := strconv.ParseInt(f[12], 10, 64)
	return total + time.Duration(ut+st)*10*time.Millisecond
}
