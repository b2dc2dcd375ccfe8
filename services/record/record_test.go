package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weir-dev/weir/schemas"
)

// counter is an actor whose answers depend on all that it was told.
type counter struct {
	Seen uint64
	Sum  uint64
	bias uint64 // makes it another actor
}

func (c *counter) Step(now schemas.Time, in *schemas.Msg, out []schemas.Msg) []schemas.Msg {
	c.Seen++
	c.Sum = c.Sum*31 + uint64(now) + in.Seq + uint64(in.Kind) + c.bias
	if in.Redelivered {
		c.Sum++
	}
	for _, s := range []string{in.Subject, in.Err, in.Digest, in.Reply, in.Trace.Parent} {
		c.Sum = c.Sum*31 + uint64(len(s))
	}
	if in.Heartbeat != nil {
		c.Sum = c.Sum*31 + uint64(in.Heartbeat.Slots)
	}
	if in.OpDone != nil {
		c.Sum = c.Sum*31 + uint64(in.OpDone.TookNS)
	}
	if c.Seen%3 == 0 {
		return out
	}
	return append(out,
		schemas.Msg{Kind: schemas.KindAck, Subject: "ready", Seq: c.Sum},
		schemas.Msg{Kind: schemas.KindReport, Subject: schemas.ReportSubject("c0", "x"), ID: "i", Report: &schemas.Report{Header: schemas.H(), Executor: "x", Epoch: c.Sum}})
}

func (c *counter) Next() schemas.Time { return schemas.Never }

func (c *counter) Snapshot(dst []byte) ([]byte, error) {
	b, err := json.Marshal(c)
	return append(dst, b...), err
}

func (c *counter) Restore(b []byte) error { return json.Unmarshal(b, c) }

func build(bias uint64) Build {
	return func(h Header) (schemas.Actor, error) {
		if h.Actor != "counter" || string(h.Config) != `{"a":1}` {
			return nil, fmt.Errorf("header %+v", h)
		}
		return &counter{bias: bias}, nil
	}
}

var header = Header{Actor: "counter", Cell: "c0", Epoch: 7, Config: json.RawMessage(`{"a":1}`)}

// input is any message that a service may hand to an actor.
func input(i int, subject string) *schemas.Msg {
	m := &schemas.Msg{Kind: schemas.KindTick, Seq: uint64(i), At: schemas.Time(i), Subject: subject}
	switch i % 5 {
	case 0:
		m.Kind, m.Heartbeat = schemas.KindHeartbeat, &schemas.Heartbeat{Header: schemas.H(), Executor: "x", Slots: i}
	case 1:
		m.Kind, m.OpDone = schemas.KindOpDone, &schemas.OpDone{ID: uint64(i), TookNS: int64(i) << 40, Err: "e"}
	case 2:
		m.Kind, m.Err, m.ID = schemas.KindPublished, schemas.ErrTextConflict, "id"
	case 3:
		m.Kind, m.Redelivered, m.Trace = schemas.KindBus, true, schemas.Trace{Parent: "p", State: "s"}
	}
	return m
}

// recordInto records n steps, with a state restored first and one saved in between.
func recordInto(t *testing.T, o Options, n int) {
	t.Helper()
	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	a, err := r.Actor(&counter{}, header)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Restore([]byte(`{"Seen":5,"Sum":9}`)); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		a.Step(schemas.Time(1000+i), input(i, strings.Repeat("s", i%40)), nil)
		if i == n/2 {
			if _, err := a.Snapshot(nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
}

func replay(t *testing.T, dir string, b Build) *Result {
	t.Helper()
	firsts, err := Find(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	if len(firsts) != 1 {
		t.Fatalf("recordings: %q", firsts)
	}
	res, err := Replay(firsts[0], b)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// TestReplay: over several parts the same actor answers the same, another one does not,
// and the first step that differs is named.
func TestReplay(t *testing.T) {
	dir := t.TempDir()
	const n = 3000
	recordInto(t, Options{Dir: dir, Part: 4 << 10}, n)
	res := replay(t, dir, build(0))
	if !res.Identical || res.Inputs != n || res.Outputs == 0 || res.Parts < 3 || res.Cut != "" || res.Span() != n-1 {
		t.Errorf("%+v", res)
	}
	part, err := Find(filepath.Join(dir, header.file()[:len(header.file())-len("0000"+suffix)]+"0002"+suffix), "")
	if err != nil || !strings.HasSuffix(part[0], "-0001"+suffix) {
		t.Errorf("any part names its recording: %q, %v", part, err)
	}
	res = replay(t, dir, build(1))
	// Line 1 is the restored state, and the first message is not answered.
	if d := res.First; res.Identical || d == nil || d.No != 3 || d.In.Kind != "op_done" || d.Recorded == d.Replayed || d.Recorded == "" {
		t.Errorf("another actor: %+v, %+v", res, d)
	}
	second, err := New(Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := second.Actor(&counter{}, header); !errors.Is(err, os.ErrExist) {
		t.Errorf("a life is not recorded twice: %v", err)
	}
}

// TestCut: what was written before a kill is replayed, and the end is told.
func TestCut(t *testing.T) {
	dir := t.TempDir()
	recordInto(t, Options{Dir: dir}, 2000)
	path := filepath.Join(dir, (&Header{Actor: "counter", Cell: "c0", Epoch: 7, Part: 1}).file())
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, share := range []int64{9, 5, 2} {
		if err := os.Truncate(path, st.Size()*share/10); err != nil {
			t.Fatal(err)
		}
		res := replay(t, dir, build(0))
		if !res.Identical || res.Inputs == 0 || res.Inputs >= 2000 || !strings.Contains(res.Cut, "killed") {
			t.Errorf("%d tenths: %+v", share, res)
		}
	}
}

// TestRoom: a recording ends at the limit of its folder and says so, there and in the
// log; the actor goes on, and another recording does not begin.
func TestRoom(t *testing.T) {
	dir := t.TempDir()
	var log strings.Builder
	o := Options{Dir: dir, Bytes: 32 << 10, Part: 8 << 10, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	recordInto(t, o, 30_000)
	res := replay(t, dir, build(0))
	if !res.Identical || res.Inputs >= 30_000 || res.Inputs < 100 || !strings.Contains(res.Cut, "full") {
		t.Errorf("%+v", res)
	}
	if !strings.Contains(log.String(), "recording stopped") {
		t.Errorf("the log does not say so: %s", log.String())
	}
	size := int64(0)
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		st, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		size += st.Size()
	}
	if size < 28<<10 || size > 44<<10 {
		t.Errorf("%d bytes in %d files, the limit is %d", size, len(files), o.Bytes)
	}
	if _, err := New(o); err == nil || !strings.Contains(err.Error(), "--record-bytes") {
		t.Errorf("a full folder: %v", err)
	}
}

// TestKinds: every kind of message comes back as it was.
func TestKinds(t *testing.T) {
	for k := schemas.KindTurn; k <= schemas.KindOpDone; k++ {
		m := schemas.Msg{Kind: k, Subject: "x", Seq: 1}
		for i := range kinds {
			if kinds[i].kind == k && kinds[i].body != nil {
				kinds[i].body(&m)
			}
		}
		r, err := pack(&m)
		if err != nil {
			t.Errorf("kind %d: %v", k, err)
			continue
		}
		back, err := r.unpack()
		if err != nil {
			t.Errorf("%s: %v", r.Kind, err)
		}
		again, err := pack(&back)
		if err != nil || !reflect.DeepEqual(again, r) || back.Kind != k || reflect.TypeOf(back.Body()) != reflect.TypeOf(m.Body()) {
			t.Errorf("%+v became %+v, %v", r, again, err)
		}
	}
}

// TestEnvelope: no part of a message's envelope is lost.
func TestEnvelope(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[ -~é\n]{0,12}`)
		m := schemas.Msg{
			Kind: schemas.KindPublished, Subject: text.Draw(t, "subject"), Seq: rapid.Uint64().Draw(t, "seq"), At: schemas.Time(rapid.Int64().Draw(t, "at")),
			ID: text.Draw(t, "id"), ExpectSet: rapid.Bool().Draw(t, "expect"), ExpectSeq: rapid.Uint64().Draw(t, "expect seq"),
			Confirm: rapid.Bool().Draw(t, "confirm"), Core: rapid.Bool().Draw(t, "core"), Redelivered: rapid.Bool().Draw(t, "redelivered"),
			Err: text.Draw(t, "err"), Digest: text.Draw(t, "digest"), Reply: text.Draw(t, "reply"),
			Trace: schemas.Trace{Parent: text.Draw(t, "parent"), State: text.Draw(t, "state")},
		}
		r, err := pack(&m)
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(&r)
		if err != nil {
			t.Fatal(err)
		}
		var r2 Message
		if err := json.Unmarshal(b, &r2); err != nil {
			t.Fatal(err)
		}
		back, err := r2.unpack()
		if err != nil || !reflect.DeepEqual(back, m) {
			t.Fatalf("%+v became %+v, %v", m, back, err)
		}
	})
}

// hasty is an actor with more to it than a recording holds.
type hasty struct{ counter }

func (*hasty) SnapshotDue() bool { return true }

// TestRefused: what a replay could not do again is not recorded.
func TestRefused(t *testing.T) {
	r, err := New(Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Actor(&hasty{}, header); !errors.Is(err, ErrActor) {
		t.Error(err)
	}
	for _, p := range []string{"no-such-folder", filepath.Join(t.TempDir(), "x.txt"), t.TempDir()} {
		if f, err := Find(p, ""); err == nil {
			t.Errorf("%s: %q", p, f)
		}
	}
}
