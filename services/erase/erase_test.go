package erase

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/png"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/turns"
	"github.com/weir-dev/weir/streams"
	"github.com/weir-dev/weir/streams/jsrun"
)

// world is NATS with a fake of everything behind it: what knows sessions, saves
// snapshots and keeps blocks.
type world struct {
	t   *testing.T
	dir string
	srv *server.Server
	nc  *nats.Conn
	js  jetstream.JetStream
	c   *turns.Client

	mu       sync.Mutex
	state    map[string]string // session to what is remembered
	pending  int
	forgot   int
	keys     []string
	restarts int // lineage "restarts" that many times after forgetting: it remembers again
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), state: map[string]string{}, keys: []string{strings.Repeat("ab", 32)}}
	topo := streams.Topology(streams.Options{})
	var err error
	if w.srv, err = jsrun.Embedded(jsrun.EmbeddedOptions{Dir: w.dir, Topology: topo}); err != nil {
		t.Fatal(err)
	}
	if w.nc, err = jsrun.Connect(jsrun.ConnectOptions{Server: w.srv, Name: "test"}); err != nil {
		t.Fatal(err)
	}
	if w.js, err = jetstream.New(w.nc); err == nil {
		err = jsrun.Provision(t.Context(), w.js, topo)
	}
	if err == nil {
		w.c, err = turns.New(w.nc, turns.Options{})
	}
	if err == nil {
		_, err = w.nc.Subscribe(schemas.SessionSubject("c0"), w.fakeLineage)
	}
	if err == nil {
		_, err = w.nc.Subscribe("agent.*.*.cancel", func(*nats.Msg) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.pending = max(0, w.pending-1)
		})
	}
	if err == nil {
		err = w.fakeTier()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.c.Close()
		w.nc.Close()
		w.srv.Shutdown()
		w.srv.WaitForShutdown()
	})
	return w
}

// fakeLineage answers as lineage does, and saves its state when it forgets.
func (w *world) fakeLineage(m *nats.Msg) {
	w.mu.Lock()
	defer w.mu.Unlock()
	req := new(schemas.SessionRequest)
	if schemas.Decode(m.Data, req) != nil {
		return
	}
	text, found := w.state[req.Session]
	r := &schemas.SessionReply{Header: schemas.H(), Found: found, Pending: w.pending}
	if found {
		r.Keys = w.keys
	}
	if req.Forget {
		if w.pending > 0 {
			r.Error = "turns are in work"
		} else {
			w.forgot++
			delete(w.state, req.Session)
			w.save()
			if w.restarts > 0 && found {
				w.restarts--
				w.state[req.Session] = text
			}
		}
	}
	if b, err := schemas.Encode(r); err == nil {
		_ = m.Respond(b)
	}
}

// save writes a snapshot large enough for pieces. Callers hold the lock.
func (w *world) save() {
	snaps, err := jsrun.NewSnapshots(context.Background(), w.js)
	if err == nil {
		var b []byte
		if b, err = json.Marshal(w.state); err == nil {
			err = snaps.Save(context.Background(), "lineage", "0", schemas.Time(time.Now().UnixNano()), map[string]uint64{"AGENT": 1}, b)
		}
	}
	if err != nil {
		w.t.Error(err)
	}
}

// fakeTier answers pings and erase requests as a node with one block per key.
func (w *world) fakeTier() error {
	_, err := w.nc.Subscribe("$SRV.PING.weir-tier", func(m *nats.Msg) {
		_ = m.Respond([]byte(`{"name":"weir-tier","id":"x","version":"0.1.0","metadata":{"node":"n0","cell":"c0"}}`))
	})
	if err != nil {
		return err
	}
	_, err = w.nc.Subscribe("weir.tier.n0.erase", func(m *nats.Msg) {
		w.mu.Lock()
		defer w.mu.Unlock()
		n := len(w.keys)
		w.keys = nil
		_ = m.Respond(fmt.Appendf(nil, `{"node":"n0","removed":%d}`, n))
	})
	return err
}

// files lists the files of the store that hold a word.
func (w *world) files(word string) (found []string) {
	w.t.Helper()
	err := filepath.WalkDir(w.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte(word)) {
			rel, _ := filepath.Rel(w.dir, path)
			found = append(found, rel)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // a file may go while they are listed
		w.t.Fatal(err)
	}
	return found
}

func (w *world) put(subject string, m schemas.Message) {
	w.t.Helper()
	b, err := schemas.Encode(m)
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.js.Publish(w.t.Context(), subject, b); err != nil {
		w.t.Fatal(err)
	}
}

func picture(t *testing.T, side int) string {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, side, side))); err != nil {
		t.Fatal(err)
	}
	return "data:image/png;base64," + base64.StdEncoding.EncodeToString(b.Bytes())
}

// live lets a session leave its traces in every stream.
func (w *world) live(session, word string, side int) {
	w.t.Helper()
	text := func(s string) json.RawMessage {
		b, _ := json.Marshal(map[string]any{"role": "user", "content": []any{
			map[string]any{"type": "text", "text": s},
			map[string]any{"type": "image_url", "image_url": map[string]any{"url": picture(w.t, side)}},
		}})
		return b
	}
	for i, content := range []string{word, strings.Repeat(word+" ", 40000), "small"} {
		turn := &schemas.Turn{Weir: schemas.TurnMeta{Turn: fmt.Sprintf("t%d", i)}, Body: schemas.Body{Messages: []json.RawMessage{text(content)}}}
		s, err := w.c.Publish(w.t.Context(), turns.Request{Session: session, Turn: turn})
		if err != nil {
			w.t.Fatal(err)
		}
		s.Close()
	}
	if _, err := w.c.Event(w.t.Context(), turns.EventRequest{Session: session, Kind: schemas.EventCompacted, Reason: word}); err != nil {
		w.t.Fatal(err)
	}
	job := schemas.JobID("default", session, "t0")
	for _, a := range []int{1, 2} {
		w.put(schemas.CkptSubject("default", session, "t0"), &schemas.Checkpoint{Header: schemas.H(), Attempt: a, Tokens: schemas.Tokens{1, 2, 3}})
	}
	w.put(schemas.OutSubject("default", session, "t0"), &schemas.Frame{Header: schemas.H(), Attempt: 1, Tokens: schemas.Tokens{1}, Text: word})
	for i := range 3 {
		id := fmt.Sprintf("t%d", i)
		w.put(schemas.ResultSubject("default", session, id), &schemas.Result{
			Header: schemas.H(), Tenant: "default", Session: session, Turn: id, Job: schemas.JobID("default", session, id), Attempt: 1,
			Status: schemas.StatusOK, Tokens: schemas.Tokens{1}, Text: word, Finish: "stop",
		})
	}
	if _, err := w.js.Publish(w.t.Context(), schemas.JobSubject(schemas.StageDecode, "c0", "d0", job), []byte(word)); err != nil {
		w.t.Fatal(err)
	}
	w.put(schemas.DeadSubject("agent", "default"), &schemas.Dead{
		Header: schemas.H(), Stage: "agent", Tenant: "default", Session: session, Subject: "x", Reason: "bad", Body: []byte(word), Code: "c",
	})
	w.put(schemas.DeadSubject("ready", "default"), &schemas.Dead{
		Header: schemas.H(), Stage: "ready", Tenant: "default", Subject: schemas.ReadySubject("c0", "default", session, "t0"), Reason: word, Code: "c",
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.state[session] = word
	w.save()
}

// standing counts the messages of each stream whose content, as far as it is plain,
// has the word.
func (w *world) standing(word string) map[string]int {
	w.t.Helper()
	out := map[string]int{}
	for _, st := range streams.Topology(streams.Options{}) {
		s, err := w.js.Stream(w.t.Context(), st.Name)
		if err != nil {
			w.t.Fatal(err)
		}
		err = jsrun.Each(w.t.Context(), s, ">", 1, s.CachedInfo().State.LastSeq, func(m *jetstream.RawStreamMsg) error {
			if bytes.Contains(m.Data, []byte(word)) || bytes.Contains(m.Data, []byte(base64.StdEncoding.EncodeToString([]byte(word)))) {
				out[st.Name]++
			}
			return nil
		})
		if err != nil {
			w.t.Fatal(err)
		}
	}
	return out
}

const (
	mine  = "canary-of-the-erased"
	other = "canary-of-the-others"
)

func (w *world) erase(o Options) (*Report, error) {
	o.Conn, o.Wait = w.nc, max(o.Wait, 10*time.Second)
	return Session(w.t.Context(), o, "default", "s1")
}

// TestSession: nothing of the session is in a stream or file, all of the other one is.
func TestSession(t *testing.T) {
	w := newWorld(t)
	w.live("s1", mine, 8)
	w.live("s2", other, 9)
	before := w.standing(mine)
	for _, name := range []string{streams.Agent, streams.Result, streams.Out, streams.Decode, streams.Dead} {
		if before[name] == 0 {
			t.Fatalf("the word is not in %s before: this test shows nothing", name)
		}
	}
	if len(w.files(mine)) == 0 {
		t.Fatal("the word is in no file before")
	}
	others, objects := w.standing(other), w.objects()
	var steps []string
	r, err := w.erase(Options{Progress: func(s string) { steps = append(steps, s) }})
	if err != nil {
		t.Fatalf("%v after %v", err, steps)
	}
	if !r.Found || r.Messages[streams.Agent] != 4 || r.Messages[streams.Result] != 3 || r.Messages[streams.Dead] != 2 || r.Messages[streams.Decode] != 1 || r.Blocks != 1 {
		t.Errorf("report %+v", r)
	}
	// Of s1: one image and one large body.
	if r.Objects != 2 || r.Kept != 0 || w.objects() != objects-2 {
		t.Errorf("%d objects removed, %d kept, %d of %d left", r.Objects, r.Kept, w.objects(), objects)
	}
	if after := w.standing(mine); len(after) > 0 {
		t.Errorf("the word is still in %v", after)
	}
	if found := w.files(mine); len(found) > 0 {
		t.Errorf("the word is still in %v", found)
	}
	if after := w.standing(other); fmt.Sprint(after) != fmt.Sprint(others) {
		t.Errorf("of the other session %v is left of %v", after, others)
	}
	snap := schemas.SnapSubject("erase", (&plan{Tenant: "default", Session: "s1"}).shard())
	if s, err := w.js.Stream(t.Context(), streams.Snap); err != nil {
		t.Error(err)
	} else if _, err := s.GetLastMsgForSubject(t.Context(), snap); !errors.Is(err, jetstream.ErrMsgNotFound) {
		t.Errorf("the plan is still there: %v", err)
	}
	r, err = w.erase(Options{})
	if err != nil || r.Found || len(r.Messages) > 0 || r.Objects > 0 {
		t.Errorf("the second time: %+v, %v", r, err)
	}
}

func (w *world) objects() int {
	w.t.Helper()
	b, err := w.js.ObjectStore(w.t.Context(), streams.PayloadBucket)
	if err != nil {
		w.t.Fatal(err)
	}
	list, err := b.List(w.t.Context())
	if err != nil && !errors.Is(err, jetstream.ErrNoObjectsFound) {
		w.t.Fatal(err)
	}
	return len(list)
}

// TestSharedImage: an image that another session refers to stays.
func TestSharedImage(t *testing.T) {
	w := newWorld(t)
	w.live("s1", mine, 8)
	w.live("s2", other, 8)
	r, err := w.erase(Options{})
	if err != nil || r.Kept != 1 || r.Objects != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	if n := w.objects(); n != 2 {
		t.Errorf("%d objects are left, want the image and the other body", n)
	}
}

// TestCrash: a run that ends anywhere is finished by the next one.
func TestCrash(t *testing.T) {
	for _, at := range []string{"forgetting", "removing messages", "removing dead letters", "removing objects", "removing KV blocks", "cleaning files", "finishing"} {
		t.Run(at, func(t *testing.T) {
			w := newWorld(t)
			w.live("s1", mine, 8)
			ctx, cancel := context.WithCancel(t.Context())
			o := Options{Conn: w.nc, Wait: 10 * time.Second, Progress: func(s string) {
				if s == at {
					cancel()
				}
			}}
			if _, err := Session(ctx, o, "default", "s1"); !errors.Is(err, ErrUnfinished) {
				t.Fatalf("the broken run says %v", err)
			}
			r, err := w.erase(Options{})
			if err != nil || !r.Found {
				t.Fatalf("%+v, %v", r, err)
			}
			w.mu.Lock()
			left := len(w.keys)
			w.mu.Unlock()
			if found, n := w.files(mine), w.objects(); len(found) > 0 || n > 0 || left > 0 {
				t.Errorf("left are %v, %d objects, %d blocks", found, n, left)
			}
		})
	}
}

// TestWorking: turns in work are not taken away without being asked to.
func TestWorking(t *testing.T) {
	w := newWorld(t)
	w.live("s1", mine, 8)
	turn := &schemas.Turn{Weir: schemas.TurnMeta{Turn: "late"}, Body: schemas.Body{Prompt: json.RawMessage(`"x"`)}}
	s, err := w.c.Publish(t.Context(), turns.Request{Session: "s1", Turn: turn})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	w.pending = 1
	if _, err := w.erase(Options{}); !errors.Is(err, ErrWorking) || w.forgot > 0 {
		t.Fatalf("%v, forgot %d times", err, w.forgot)
	}
	if len(w.files(mine)) == 0 {
		t.Error("something was removed")
	}
	r, err := w.erase(Options{Cancel: true})
	if err != nil || r.Cancelled != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestRemembered: lineage that restarts from an old snapshot is told again.
func TestRemembered(t *testing.T) {
	w := newWorld(t)
	w.live("s1", mine, 8)
	w.restarts = 3
	if _, err := w.erase(Options{}); err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state["s1"] != "" || w.forgot < 4 {
		t.Errorf("lineage remembers %q after forgetting %d times", w.state["s1"], w.forgot)
	}
}

func TestNobodyThere(t *testing.T) {
	if _, err := Session(t.Context(), Options{}, "default", "a.b"); !errors.Is(err, schemas.ErrID) {
		t.Errorf("a bad id: %v", err)
	}
}
