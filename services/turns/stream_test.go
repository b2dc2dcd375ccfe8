package turns

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
	"github.com/weir-dev/weir/streams/jsrun"
)

// want checks a full reading of the first n tokens, from a position on.
func (k *fake) want(r reading, from Position, n int) {
	k.t.Helper()
	if !errors.Is(r.err, io.EOF) {
		k.t.Fatalf("the stream ended with %v", r.err)
	}
	w := whole(n)
	if d := cmp.Diff(w[from.Index:], r.tokens); d != "" {
		k.t.Errorf("tokens (-want +got):\n%s", d)
	}
	if want := textOf(w...)[from.TextAt:]; r.text != want {
		k.t.Errorf("text is %q, want %q", r.text, want)
	}
	if r.result == nil || len(r.result.Tokens) != n {
		k.t.Errorf("result is %+v", r.result)
	}
}

// TestScripts: whatever order, repeats, gaps and attempts frames come in, the
// caller reads each token once.
func TestScripts(t *testing.T) {
	type step func(k *fake)
	fr := func(a, from, to int) step { return func(k *fake) { k.frame(a, from, to) } }
	wait := func(d time.Duration) step { return func(k *fake) { k.settle(); time.Sleep(d) } }
	end := func(a int) step { return func(k *fake) { k.result(k.resultOf(a, 12)) } }
	for name, script := range map[string][]step{
		"in order":                  {fr(1, 0, 1), fr(1, 1, 5), fr(1, 5, 12), end(1)},
		"duplicates":                {fr(1, 0, 1), fr(1, 0, 1), fr(1, 0, 5), fr(1, 1, 5), fr(1, 3, 12), end(1)},
		"result alone":              {end(1)},
		"frames behind the result":  {end(1), fr(1, 0, 12)},
		"second attempt repeats":    {fr(1, 0, 4), fr(2, 0, 4), fr(2, 4, 12), end(2)},
		"second attempt continues":  {fr(1, 0, 4), fr(2, 4, 8), fr(1, 4, 6), fr(2, 8, 12), end(2)},
		"old attempt lags":          {fr(2, 0, 4), fr(1, 0, 12), fr(2, 4, 12), end(2)},
		"late end of an attempt":    {fr(1, 0, 4), fr(2, 8, 10), fr(1, 4, 8), fr(1, 8, 12), fr(2, 10, 12), end(2)},
		"gap, OUT has nothing":      {fr(1, 0, 2), fr(1, 6, 8), wait(time.Second), fr(1, 8, 12), end(1)},
		"gap at the start":          {fr(1, 6, 12), end(1)},
		"silence, then the result":  {fr(1, 0, 4), wait(30 * time.Second), end(1)},
		"result in doubt is stored": {fr(2, 0, 4), wait(time.Second), end(2)},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Options{}, func(_ *testing.T, k *fake) {
				s := k.publish()
				for _, f := range script {
					f(k)
				}
				k.want(k.read(s, Position{}), Position{}, 12)
			})
		})
	}
}

// TestZombie: an executor that had lost the turn goes on with other tokens. They
// do not count, whether they are read live or fetched.
func TestZombie(t *testing.T) {
	other := frameOf(1, 8, 10)
	other.Tokens = schemas.Tokens{1, 2}
	other.Text = "??"
	play := func(k *fake) {
		k.frame(1, 0, 4)
		k.frame(1, 4, 8)
		k.frame(2, 8, 9)
		k.send(schemas.OutSubject("default", "s", "t1"), other)
		k.frame(2, 9, 12)
	}
	inBubble(t, Options{}, func(_ *testing.T, k *fake) {
		s := k.publish()
		play(k)
		k.result(k.resultOf(2, 12))
		k.want(k.read(s, Position{}), Position{}, 12)
	})
	inBubble(t, Options{}, func(t *testing.T, k *fake) {
		s := k.publish()
		k.deaf(func() { play(k) })
		r := make(chan reading, 1)
		go func() { r <- k.read(s, Position{}) }()
		time.Sleep(5 * time.Second) // virtual: the frames are fetched after a silence
		k.result(k.resultOf(2, 12))
		got := <-r
		k.want(got, Position{}, 12)
		if got.events != 4 {
			t.Errorf("%d events, want the four frames that count", got.events)
		}
	})
}

func TestSlowReaderLosesNothing(t *testing.T) {
	inBubble(t, Options{Buffer: 2}, func(t *testing.T, k *fake) {
		s := k.publish()
		for i := range 600 {
			k.frame(1, i, i+1)
		}
		k.settle()
		r := make(chan reading, 1)
		go func() { r <- k.read(s, Position{}) }()
		k.settle()
		k.result(k.resultOf(1, 600))
		got := <-r
		k.want(got, Position{}, 600)
		if got.events < 500 {
			t.Errorf("%d events: the frames were not fetched from OUT", got.events)
		}
	})
}

func TestResume(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, k *fake) {
		first := k.publish()
		k.frame(1, 0, 4)
		k.frame(1, 4, 9)
		e, err := first.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		first.Close()
		from := e.Position()
		s, err := k.c.Resume(t.Context(), k.ref, from)
		if err != nil {
			t.Fatal(err)
		}
		k.frame(1, 9, 12)
		k.result(k.resultOf(1, 12))
		k.want(k.read(s, from), from, 12)
		late, err := k.c.Resume(t.Context(), k.ref, Position{})
		if err != nil {
			t.Fatal(err)
		}
		k.want(k.read(late, Position{}), Position{}, 12)
	})
}

func TestSameTurnAgain(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, k *fake) {
		k.publish().Close()
		k.frame(1, 0, 12)
		k.result(k.resultOf(1, 12))
		k.settle()
		began := time.Now()
		k.want(k.read(k.publish(), Position{}), Position{}, 12)
		if d := time.Since(began); d > time.Second {
			t.Errorf("the answer to a repeated publish took %s", d)
		}
		// Beyond the window of message ids the server stores it again, and only
		// lineage's silence says that it is the same turn.
		time.Sleep(5 * time.Minute)
		k.want(k.read(k.publish(), Position{}), Position{}, 12)
	})
}

// TestErasedTurnAgain: the server still knows the message id of a turn that was erased,
// and takes the turn of the session's next life for it.
func TestErasedTurnAgain(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, k *fake) {
		k.publish().Close()
		st, err := k.js.Stream(t.Context(), streams.Agent)
		if err != nil {
			t.Fatal(err)
		}
		count := func() uint64 {
			info, err := st.Info(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return info.State.Msgs
		}
		k.publish().Close()
		if n := count(); n != 1 {
			t.Fatalf("%d turns are stored, a repeat is none of its own", n)
		}
		if err := st.SecureDeleteMsg(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		k.publish().Close()
		if n := count(); n != 1 {
			t.Errorf("%d turns are stored after the erase and another publish", n)
		}
		k.result(k.resultOf(1, 12))
		if err := st.SecureDeleteMsg(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
		k.want(k.read(k.publish(), Position{}), Position{}, 12)
		if n := count(); n != 0 {
			t.Errorf("%d turns are stored, although the turn has a result", n)
		}
	})
}

func TestOtherContentIsRefused(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, k *fake) {
		k.publish().Close()
		k.frame(1, 0, 4)
		k.settle()
		s, err := k.c.Publish(t.Context(), request(k, "something else"))
		if err != nil {
			t.Fatal(err)
		}
		k.frame(1, 4, 12) // of the first turn, which goes on
		k.reject("0000")  // somebody else's
		time.Sleep(100 * time.Millisecond)
		if s.digest != k.inboundDigest(2) {
			t.Fatalf("digest %s is not that of the body in AGENT", s.digest)
		}
		k.reject(s.digest)
		_, err = s.Next(t.Context())
		var f *FailureError
		if !errors.As(err, &f) || f.Failure.Code != schemas.CodeConflict {
			t.Fatalf("Next says %v, want the conflict", err)
		}
	})
}

func TestChangedTokenIsAnError(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, k *fake) {
		s := k.publish()
		k.frame(1, 0, 4)
		bad := frameOf(2, 0, 6)
		bad.Tokens[1]++
		k.send(s.outSubject, bad)
		if r := k.read(s, Position{}); !errors.Is(r.err, ErrChanged) || len(r.tokens) != 4 {
			t.Errorf("read %+v, want 4 tokens and ErrChanged", r)
		}
	})
	inBubble(t, Options{}, func(t *testing.T, k *fake) {
		s := k.publish()
		k.frame(1, 0, 4)
		res := k.resultOf(1, 12)
		res.Text = "Z" + res.Text[1:]
		k.result(res)
		if r := k.read(s, Position{}); !errors.Is(r.err, ErrChanged) || r.result != nil {
			t.Errorf("read %+v, want ErrChanged", r)
		}
	})
}

func TestFailedResult(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, k *fake) {
		s := k.publish()
		k.frame(1, 0, 4)
		res := k.resultOf(1, 0)
		res.Status, res.Failure = schemas.StatusFailed, &schemas.Failure{Code: schemas.CodeCancelled, Message: "stop"}
		k.result(res)
		r := k.read(s, Position{})
		if !errors.Is(r.err, io.EOF) || len(r.tokens) != 4 || r.result == nil || r.result.Failure.Code != schemas.CodeCancelled {
			t.Errorf("read %+v", r)
		}
	})
}

// TestStoredResultCounts: a second attempt's result came first by core NATS, but
// the stream had taken another one.
func TestStoredResultCounts(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, k *fake) {
		s := k.publish()
		k.frame(2, 0, 4)
		k.settle()
		lost := k.resultOf(2, 12)
		lost.DecodeOn = "loser"
		k.deaf(func() { k.result(k.resultOf(1, 12)) })
		b, err := schemas.Encode(lost)
		if err != nil {
			t.Fatal(err)
		}
		// As executors publish: the stream refuses it, subscribers see it anyway.
		m := &nats.Msg{Subject: s.resultSubject, Data: b, Header: nats.Header{jetstream.ExpectedLastSubjSeqHeader: {"0"}}}
		if err := k.nc.PublishMsg(m); err != nil {
			t.Fatal(err)
		}
		if r := k.read(s, Position{}); r.result == nil || r.result.DecodeOn == "loser" {
			t.Errorf("read %+v, want the stored result", r.result)
		}
	})
}

// deaf runs f while the client's connection does not listen to the turn.
func (k *fake) deaf(f func()) {
	k.c.hub.mu.Lock()
	saved := k.c.hub.routes
	k.c.hub.routes = map[string][]*Stream{}
	k.c.hub.mu.Unlock()
	f()
	k.settle()
	k.c.hub.mu.Lock()
	k.c.hub.routes = saved
	k.c.hub.mu.Unlock()
}

// TestMissedEverything: no live message arrives at all.
func TestMissedEverything(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, k *fake) {
		s := k.publish()
		k.deaf(func() {
			k.frame(1, 0, 4)
			k.frame(1, 4, 9)
			k.result(k.resultOf(1, 12))
		})
		r := k.read(s, Position{})
		k.want(r, Position{}, 12)
		if r.events != 3 {
			t.Errorf("%d events, want two frames from OUT and the rest", r.events)
		}
	})
}

func TestFullStream(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, k *fake) {
		for {
			_, err := k.js.Publish(t.Context(), "agent.default.filler.user_wait", make([]byte, 100<<10))
			if err != nil {
				break
			}
		}
		_, err := k.c.Publish(t.Context(), request(k, strings.Repeat("a", 200<<10)))
		var busy *BusyError
		if !errors.Is(err, ErrBusy) || !errors.As(err, &busy) || busy.RetryAfter <= 0 {
			t.Fatalf("Publish says %v, want ErrBusy", err)
		}
	})
}

func TestNobodyTakesIt(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, k *fake) {
		if err := k.js.DeleteStream(t.Context(), streams.Agent); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		_, err := k.c.Publish(t.Context(), request(k, "x"))
		if !errors.Is(err, ErrBusy) {
			t.Fatalf("Publish says %v, want ErrBusy", err)
		}
		if d := time.Since(began); d < 9*time.Second || d > 20*time.Second {
			t.Errorf("it took %s, want about BusyAfter", d)
		}
	})
}

func TestLargeBody(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, k *fake) {
		long := make([]byte, 2<<20)
		for i := range long {
			long[i] = 'a' + byte(i%7)
		}
		s, err := k.c.Publish(t.Context(), request(k, string(long)))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		st, err := k.js.Stream(t.Context(), streams.Agent)
		if err != nil {
			t.Fatal(err)
		}
		m, err := st.GetMsg(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		got := new(schemas.Turn)
		if err := schemas.Decode(m.Data, got); err != nil {
			t.Fatal(err)
		}
		if got.BodyRef == nil || got.Weir.Digest != s.digest || got.Weir.Turn != "t1" || len(got.Messages) > 0 {
			t.Fatalf("message is %.200s", m.Data)
		}
		p, err := jsrun.NewPayloads(t.Context(), k.js, 0)
		if err != nil {
			t.Fatal(err)
		}
		body, err := p.Get(t.Context(), *got.BodyRef)
		if err != nil || len(body) < len(long) {
			t.Errorf("the bucket has %d bytes, %v", len(body), err)
		}
		if _, err := k.c.Publish(t.Context(), request(k, string(make([]byte, 5<<20)))); !errors.Is(err, ErrTooLarge) {
			t.Errorf("a body of 30 MB of escapes: %v, want ErrTooLarge", err)
		}
	})
}
