package simrun

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
)

// machine is an actor made of a function with a counter as its state.
type machine struct {
	on   func(m *machine, now schemas.Time, in *schemas.Msg, out []schemas.Msg) []schemas.Msg
	next schemas.Time
	n    int
}

func (m *machine) Step(now schemas.Time, in *schemas.Msg, out []schemas.Msg) []schemas.Msg {
	return m.on(m, now, in, out)
}
func (m *machine) Next() schemas.Time { return m.next }
func (m *machine) Snapshot(dst []byte) ([]byte, error) {
	return fmt.Append(dst, m.n), nil
}

func (m *machine) Restore(b []byte) error {
	_, err := fmt.Sscan(string(b), &m.n)
	return err
}

// lineage turns turns into ready messages, router places them as jobs and holds
// them until done, executor works 10 ms and writes the result.
func lineage() *machine {
	return &machine{next: schemas.Never, on: func(m *machine, _ schemas.Time, in *schemas.Msg, out []schemas.Msg) []schemas.Msg {
		if in.Kind != schemas.KindTurn {
			return out
		}
		m.n++
		s, _ := schemas.ParseSubject(in.Subject)
		tenant, session, turn := s.Get("tenant"), s.Get("session"), in.Turn.Weir.Turn
		return append(out, schemas.Msg{
			Kind: schemas.KindReady, Subject: schemas.ReadySubject("c0", tenant, session, turn), ID: session + "/" + turn,
			Ready: &schemas.Ready{
				Header: schemas.H(), Tenant: tenant, Session: session, Turn: turn, Branch: "main", MaxNew: 1,
				Job: schemas.JobID(tenant, session, turn), Prompt: schemas.Prompt{N: 1, Tail: schemas.Tokens{7}},
			},
		})
	}}
}

func router() *machine {
	held := map[string]schemas.Msg{}
	return &machine{next: schemas.Never, on: func(_ *machine, _ schemas.Time, in *schemas.Msg, out []schemas.Msg) []schemas.Msg {
		switch in.Kind {
		case schemas.KindReady:
			held[in.Ready.Job] = schemas.Msg{Kind: schemas.KindAck, Subject: in.Subject, Seq: in.Seq}
			out = append(out, schemas.Msg{
				Kind: schemas.KindJob, Subject: schemas.JobSubject(schemas.StageDecode, "c0", "e0", in.Ready.Job), ID: in.Ready.Job + ":1",
				Job: &schemas.Job{Header: schemas.H(), Stage: schemas.StageDecode, Attempt: 1, Ready: in.Ready},
			})
		case schemas.KindDone:
			if a, ok := held[in.Done.Job]; ok {
				delete(held, in.Done.Job)
				out = append(out, a)
			}
		default:
		}
		return out
	}}
}

func executor() *machine {
	jobs := map[uint64]*schemas.Ready{}
	return &machine{next: schemas.Never, on: func(m *machine, _ schemas.Time, in *schemas.Msg, out []schemas.Msg) []schemas.Msg {
		switch in.Kind {
		case schemas.KindJob:
			m.n++
			jobs[uint64(m.n)] = in.Job.Ready
			out = append(out, schemas.Msg{Kind: schemas.KindOp, Op: &schemas.Op{ID: uint64(m.n), Drop: &schemas.DropOp{}}})
		case schemas.KindOpDone:
			r := jobs[in.OpDone.ID]
			delete(jobs, in.OpDone.ID)
			out = append(out, schemas.Msg{
				Kind: schemas.KindResult, Subject: schemas.ResultSubject(r.Tenant, r.Session, r.Turn), ExpectSet: true,
				Result: &schemas.Result{
					Header: schemas.H(), Tenant: r.Tenant, Session: r.Session, Turn: r.Turn, Job: r.Job, Attempt: 1, Status: schemas.StatusOK,
				},
			}, schemas.Msg{
				Kind: schemas.KindDone, Subject: schemas.DoneSubject("c0", r.Job), ID: r.Job,
				Done: &schemas.Done{Header: schemas.H(), Job: r.Job, Attempt: 1, Outcome: schemas.OutcomeDecoded},
			})
		default:
		}
		return out
	}}
}

func startChain(t failer, s *Sim) {
	t.Helper()
	for _, svc := range []Service{
		{Name: "lineage", Actor: lineage(), Inputs: []streams.Input{{Stream: streams.Agent, Durable: "lineage"}}},
		{Name: "router", Actor: router(), Inputs: []streams.Input{
			{Stream: streams.Ready, Filters: []string{"ready.c0.>"}, Durable: "router-c0", Policy: streams.Hold, Recreate: true},
			{Stream: streams.Done, Filters: []string{"done.c0.*"}, Policy: streams.NoAck, Deliver: streams.DeliverNew},
		}},
		{
			Name: "executor", Actor: executor(),
			Inputs: []streams.Input{{Stream: streams.Decode, Filters: []string{"decode.c0.e0.*"}, Policy: streams.NoAck}},
			Local: func(_ schemas.Time, op *schemas.Op) (schemas.OpDone, time.Duration) {
				return schemas.OpDone{ID: op.ID}, 10 * time.Millisecond
			},
		},
	} {
		if err := s.Start(svc); err != nil {
			t.Fatal(err)
		}
	}
}

type failer interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// harsh is a network that loses and repeats.
var harsh = Net{MinDelay: time.Millisecond, MaxDelay: 40 * time.Millisecond, LoseAck: 0.2, Redeliver: 0.2}

// runChain sends turns through the chain and crashes lineage on the way.
func runChain(t failer, seed uint64, share bool, log *bytes.Buffer) *Sim {
	t.Helper()
	o := Options{Seed: seed, Net: harsh, ShareBodies: share}
	if log != nil {
		o.Log = log
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	startChain(t, s)
	for i := range 50 {
		s.At(s.Now()+schemas.Time(i)*schemas.Time(7*time.Millisecond), func() {
			turn := fmt.Sprintf("u%d", i)
			m := schemas.Msg{
				Kind: schemas.KindTurn, Subject: schemas.AgentSubject("t", fmt.Sprintf("s%d", i%5), schemas.EventTurn), ID: turn,
				Turn: &schemas.Turn{Weir: schemas.TurnMeta{Turn: turn}},
			}
			if _, err := s.PublishMsg(&m); err != nil {
				t.Fatal(err)
			}
		})
	}
	s.At(s.Now()+schemas.Time(100*time.Millisecond), func() {
		s.Crash("lineage")
		if err := s.Start(Service{Name: "lineage", Actor: lineage(), Inputs: []streams.Input{{Stream: streams.Agent, Durable: "lineage"}}}); err != nil {
			t.Fatal(err)
		}
	})
	// A lost acknowledgement of a held message shows after its wait of an hour.
	if err := s.RunFor(15 * time.Hour); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestEveryTurnEndsOnce holds whatever the network does.
func TestEveryTurnEndsOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := runChain(t, rapid.Uint64().Draw(t, "seed"), rapid.Bool().Draw(t, "share"), nil)
		if n := len(s.Stored(streams.Result)); n != 50 {
			t.Fatalf("%d results of 50", n)
		}
		if left := s.Stored(streams.Ready); len(left) != 0 {
			t.Fatalf("%d turns are still in the queue", len(left))
		}
	})
}

func TestSameSeedSameLog(t *testing.T) {
	logs := make([]bytes.Buffer, 3)
	for i, seed := range []uint64{42, 42, 43} {
		runChain(t, seed, false, &logs[i])
	}
	if !bytes.Equal(logs[0].Bytes(), logs[1].Bytes()) {
		t.Error("the same seed gave two logs")
	}
	if bytes.Equal(logs[0].Bytes(), logs[2].Bytes()) || logs[0].Len() < 10000 {
		t.Errorf("another seed gave the same log, or there is none: %d bytes", logs[0].Len())
	}
}

func TestCoreLossAndOrder(t *testing.T) {
	s, err := New(Options{Seed: 1, Net: Net{MinDelay: time.Millisecond, MaxDelay: 50 * time.Millisecond, LoseCore: 0.3}})
	if err != nil {
		t.Fatal(err)
	}
	var got []uint64
	m := &machine{next: schemas.Never, on: func(_ *machine, _ schemas.Time, in *schemas.Msg, out []schemas.Msg) []schemas.Msg {
		got = append(got, in.Heartbeat.Seq)
		return out
	}}
	if err := s.Start(Service{Name: "r", Actor: m, Inputs: []streams.Input{{Core: true, Filters: []string{"hb.>"}}}}); err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		b, err := schemas.Encode(&schemas.Heartbeat{Header: schemas.H(), Executor: "e", Seq: uint64(i)})
		if err != nil {
			t.Fatal(err)
		}
		s.PublishCore("hb.c0.e", b)
	}
	if err := s.RunFor(time.Second); err != nil {
		t.Fatal(err)
	}
	if !slices.IsSorted(got) || len(got) < 600 || len(got) > 800 {
		t.Errorf("%d of 1000 arrived, in order: %v", len(got), slices.IsSorted(got))
	}
}

func TestLimits(t *testing.T) {
	s, err := New(Options{Topology: streams.Topology(streams.Options{MaxBytes: map[string]int64{streams.Done: 2 << 20, streams.Agent: 2 << 20}})})
	if err != nil {
		t.Fatal(err)
	}
	big := bytes.Repeat([]byte("x"), 600<<10)
	var refused error
	for range 5 {
		if _, err := s.Publish("done.c0.j", "", big); err != nil {
			t.Errorf("a stream that discards old refused: %v", err)
		}
		_, refused = s.Publish("agent.t.s.turn", "", big)
	}
	if !errors.Is(refused, ErrFull) || len(s.Stored(streams.Agent)) != 3 || len(s.Stored(streams.Done)) != 3 {
		t.Errorf("%v; %d, %d", refused, len(s.Stored(streams.Agent)), len(s.Stored(streams.Done)))
	}
	if _, err := s.Publish("nobody.x", "", nil); !errors.Is(err, ErrNoStream) {
		t.Errorf("%v", err)
	}
	if _, err := s.Publish("done.c0.j", "", make([]byte, 2<<20)); err == nil {
		t.Error("a message above max_msg_size was stored")
	}
	if err := s.RunFor(3 * time.Minute); err != nil {
		t.Fatal(err)
	}
	if n := len(s.Stored(streams.Done)); n != 0 {
		t.Errorf("%d messages outlived their age", n)
	}
	for i := range 3 {
		if _, err := s.Publish("report.c0.e1", "", fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.Stored(streams.Report); len(got) != 1 || string(got[0].Body) != "2" {
		t.Errorf("last per subject keeps %v", got)
	}
}

func TestRefusals(t *testing.T) {
	if _, err := New(Options{Net: Net{MinDelay: 0, MaxDelay: time.Second}}); !errors.Is(err, ErrConfig) {
		t.Errorf("delay 0: %v", err)
	}
	s, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, svc := range []Service{{Name: "a b", Actor: lineage()}, {Name: "a"}} {
		if err := s.Start(svc); !errors.Is(err, ErrConfig) {
			t.Errorf("%q: %v", svc.Name, err)
		}
	}
	if err := s.Start(Service{Name: "a", Actor: lineage(), Inputs: []streams.Input{{Stream: "X"}}}); !errors.Is(err, streams.ErrInput) {
		t.Errorf("%v", err)
	}
	// An operation without duration that asks for itself must not hang.
	loop := &machine{next: 0, on: func(m *machine, _ schemas.Time, _ *schemas.Msg, out []schemas.Msg) []schemas.Msg {
		m.next = schemas.Never
		return append(out, schemas.Msg{Kind: schemas.KindOp, Op: &schemas.Op{}})
	}}
	if err := s.Start(Service{Name: "loop", Actor: loop, Local: func(schemas.Time, *schemas.Op) (schemas.OpDone, time.Duration) {
		return schemas.OpDone{}, 0
	}}); err != nil {
		t.Fatal(err)
	}
	if err := s.RunFor(time.Second); !errors.Is(err, ErrLivelock) {
		t.Errorf("%v", err)
	}
}

// TestConsumersAreFoundByHead compares the index with trying every filter.
func TestConsumersAreFoundByHead(t *testing.T) {
	filters := []string{"done.c0.*", "done.>", "done.*.j1", "done.c0.j1", ">", "*.c0.*", "done.c1.>"}
	rapid.Check(t, func(t *rapid.T) {
		st := newStream(streams.Stream{Name: "X"})
		var all []*consumer
		for i := range rapid.IntRange(1, 6).Draw(t, "consumers") {
			c := &consumer{st: st, name: fmt.Sprint(i), in: streams.Input{Filters: rapid.SliceOfN(rapid.SampledFrom(filters), 0, 3).Draw(t, "filters")}}
			st.add(c)
			all = append(all, c)
		}
		subject := rapid.SampledFrom([]string{"done.c0.j1", "done.c0.j2", "done.c1.j1", "done.c2.j9"}).Draw(t, "subject")
		var want, got []string
		for _, c := range all {
			if c.in.Wants(subject) {
				want = append(want, c.name)
			}
		}
		st.eachMatching(subject, func(c *consumer) { got = append(got, c.name) })
		slices.Sort(got)
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("%s (-want +got):\n%s", subject, d)
		}
	})
}

func BenchmarkSim(b *testing.B) {
	for _, share := range []bool{false, true} {
		b.Run(fmt.Sprintf("share=%v", share), func(b *testing.B) {
			s, err := New(Options{ShareBodies: share})
			if err != nil {
				b.Fatal(err)
			}
			startChain(b, s)
			for i := range b.N {
				turn := fmt.Sprintf("u%d", i)
				m := schemas.Msg{
					Kind: schemas.KindTurn, Subject: schemas.AgentSubject("t", fmt.Sprintf("s%d", i%256), schemas.EventTurn), ID: turn,
					Turn: &schemas.Turn{Weir: schemas.TurnMeta{Turn: turn}},
				}
				if _, err := s.PublishMsg(&m); err != nil {
					b.Fatal(err)
				}
				if err := s.RunFor(time.Millisecond); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
