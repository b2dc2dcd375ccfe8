package simturn

import (
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weir-dev/weir/gpuexec/nullengine"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
	"github.com/weir-dev/weir/streams/simrun"
)

// client is one session: it publishes a turn, waits for its result and publishes
// the next, in turns as a delta and with all messages.
type client struct {
	s        *stack
	session  string
	turns    int // wanted
	sent     int
	messages []map[string]string
	known    string
	body     []byte
	want     map[string][]int32 // tokens of each turn
	results  map[string]*schemas.Result
	failed   []string
	stopped  map[string]bool // turns that the client cancelled
}

const maxTokens = 40

// say publishes an event about the branch that the client is on, sometimes twice.
func (c *client) say(kind schemas.EventKind) {
	body, err := schemas.Encode(&schemas.Event{Header: schemas.H(), Tool: "shell", Turn: fmt.Sprintf("u%d", c.sent-1)})
	if err != nil {
		c.s.t.Fatal(err)
	}
	for range 1 + c.s.rnd.IntN(2) {
		if _, err := c.s.sim.Publish(schemas.AgentSubject("t", c.session, kind), "", body); err != nil {
			c.s.t.Fatal(err)
		}
	}
}

// next publishes the next turn, sometimes twice.
func (c *client) next() {
	if r := c.results[fmt.Sprintf("u%d", c.sent-1)]; r != nil && r.Failure == nil && c.s.rnd.IntN(3) == 0 {
		c.say(schemas.EventToolWait)
	}
	id := fmt.Sprintf("u%d", c.sent)
	c.sent++
	c.messages = append(c.messages, map[string]string{"role": "user", "content": fmt.Sprintf("%s asks %d %0*d", c.session, c.sent, 20+c.s.rnd.IntN(300), 0)})
	meta := map[string]any{"turn": id}
	msgs := c.messages
	if c.known != "" && c.s.rnd.IntN(2) == 0 {
		meta["known"] = c.known
		msgs = msgs[len(msgs)-1:]
	}
	var raw []json.RawMessage
	for _, m := range c.messages {
		b, err := json.Marshal(m)
		if err != nil {
			c.s.t.Fatal(err)
		}
		raw = append(raw, b)
	}
	c.want[id] = expected(render(&schemas.RenderRequest{Messages: raw}).Tokens)
	body, err := json.Marshal(map[string]any{"weir": meta, "messages": msgs, "max_tokens": maxTokens, "temperature": 0})
	if err != nil {
		c.s.t.Fatal(err)
	}
	c.body = body
	c.publish("t/" + c.session + "/" + id)
	if c.s.rnd.IntN(4) == 0 {
		c.publish("")
	}
}

func (c *client) publish(id string) {
	if _, err := c.s.sim.Publish(schemas.AgentSubject("t", c.session, schemas.EventTurn), id, c.body); err != nil {
		c.s.t.Fatal(err)
	}
}

// expected is what the fake engine answers to a prompt.
func expected(prompt []int32) []int32 {
	all := slices.Clone(prompt)
	for range maxTokens {
		all = append(all, nullengine.Next(all[len(all)-1], int32(len(all)-1)))
	}
	return all[len(prompt):]
}

// see takes the result of the turn in work, and says whether all turns have ended.
func (c *client) see() bool {
	id := fmt.Sprintf("u%d", c.sent-1)
	if b := c.s.last(streams.Result, schemas.ResultSubject("t", c.session, id)); b != nil && c.results[id] == nil {
		r := &schemas.Result{}
		if err := schemas.Decode(b, r); err != nil {
			c.s.t.Fatal(err)
		}
		c.results[id] = r
		switch {
		case r.Failure != nil && r.Failure.Code == schemas.CodeCancelled && c.stopped[id]:
			c.messages = c.messages[:len(c.messages)-1]
		case r.Failure != nil:
			c.failed = append(c.failed, fmt.Sprintf("%s %s: %+v", c.session, id, r.Failure))
			return true
		default:
			c.messages = append(c.messages, map[string]string{"role": "assistant", "content": r.Text})
			c.known = r.Known()
		}
		if c.sent < c.turns {
			c.next()
		}
	}
	return len(c.results) == c.turns
}

// client starts a session.
func (s *stack) client(session string, turns int) *client {
	c := &client{s: s, session: session, turns: turns, want: map[string][]int32{}, results: map[string]*schemas.Result{}, stopped: map[string]bool{}}
	c.next()
	return c
}

// cancel stops the turn in work, at whatever point it is.
func (c *client) cancel() {
	id := fmt.Sprintf("u%d", c.sent-1)
	c.stopped[id] = true
	body, err := schemas.Encode(&schemas.Event{Header: schemas.H(), Turn: id})
	if err != nil {
		c.s.t.Fatal(err)
	}
	if _, err := c.s.sim.Publish(schemas.AgentSubject("t", c.session, schemas.EventCancel), "", body); err != nil {
		c.s.t.Fatal(err)
	}
}

type faults struct {
	net     simrun.Net
	crashes bool
	flips   bool
	cancels bool
	tier    int // blocks that the tier holds
}

// play runs sessions on a stack until all turns have ended, checks them, and
// returns the digest of everything that happened.
func play(t *testing.T, seed uint64, f faults) string {
	t.Helper()
	s := newStack(t, seed, f.net, schemas.RolePrefill, schemas.RoleDecode, schemas.RoleDecode, schemas.RoleMixed)
	s.tier.most = f.tier
	var clients []*client
	for i := range 4 {
		clients = append(clients, s.client(fmt.Sprintf("s%d", i), 4))
	}
	for step := 0; ; step++ {
		if err := s.sim.RunFor(50 * time.Millisecond); err != nil {
			t.Fatal(err)
		}
		all := true
		for _, c := range clients {
			all = c.see() && all
		}
		if all {
			break
		}
		if step > 20*300 {
			t.Fatalf("seed %d: turns are left after 300 s: READY %d, %s", seed, len(s.sim.Stored(streams.Ready)), left(clients))
		}
		if f.cancels && s.rnd.IntN(6) == 0 {
			clients[s.rnd.IntN(len(clients))].cancel()
		}
		if f.crashes && step < 600 {
			s.maybeCrash()
		}
		if f.flips && step%60 == 59 && step < 600 {
			i := s.rnd.IntN(3) // e3 is mixed: both phases can always be served
			s.assign(i, []schemas.Role{schemas.RolePrefill, schemas.RoleDecode}[s.rnd.IntN(2)])
		}
	}
	if err := s.sim.RunFor(15 * time.Second); err != nil {
		t.Fatal(err)
	}
	// The acknowledgement of a READY message that was lost is repeated when the
	// message comes again: after an hour, or to the next router at once. It may be
	// lost again.
	for n := 0; n < 3 && len(s.sim.Stored(streams.Ready)) > 0 && f.net.Redeliver > 0; n++ {
		s.crash("router", time.Second, s.startRouter)
		if err := s.sim.RunFor(15 * time.Second); err != nil {
			t.Fatal(err)
		}
	}
	s.check(seed, clients)
	for _, m := range s.sim.Stored(streams.Dead) {
		t.Errorf("seed %d: dead letter %s %s", seed, m.Subject, m.Body)
	}
	return hex.EncodeToString(s.log.Sum(nil))
}

func left(clients []*client) (out string) {
	for _, c := range clients {
		out += fmt.Sprintf(" %s: %d of %d", c.session, len(c.results), c.turns)
	}
	return out
}

// maybeCrash ends a random service now and then.
func (s *stack) maybeCrash() {
	back := time.Duration(50+s.rnd.IntN(2000)) * time.Millisecond
	switch i := s.rnd.IntN(150); {
	case i < len(s.roles) && s.boots[i] >= 0:
		s.boots[i] = -s.boots[i] // down
		s.crash(execID(i), back, func() { s.boots[i] = -s.boots[i]; s.startExecutor(i) })
		s.died(i, true)
	case i == 10 && !s.linDown:
		s.linDown = true
		s.crash("lineage", back, func() { s.linDown = false; s.startLineage() })
	case i == 11 && !s.routerDown:
		s.routerDown = true
		s.crash("router", back, func() { s.routerDown = false; s.startRouter() })
	}
}

// check: exactly one result for each turn, with the right tokens (invariant 1); no
// frame that differs from them (invariant 2); READY is empty; no dead letters.
func (s *stack) check(seed uint64, clients []*client) {
	s.t.Helper()
	for _, c := range clients {
		for _, why := range c.failed {
			s.t.Errorf("seed %d: lost: %s", seed, why)
		}
		for id, want := range c.want {
			r := c.results[id]
			if r == nil || r.Failure != nil {
				continue
			}
			if !slices.Equal(r.Tokens, want) {
				s.t.Errorf("seed %d: %s %s: tokens %v, want %v", seed, c.session, id, r.Tokens, want)
			}
			text := ""
			for _, tok := range want {
				text += string(rune(tok))
			}
			for _, f := range s.frames("t", c.session, id) {
				if f.First+len(f.Tokens) > len(want) || !slices.Equal(f.Tokens, want[f.First:f.First+len(f.Tokens)]) || text[f.TextAt:f.TextAt+len(f.Text)] != f.Text {
					s.t.Errorf("seed %d: %s %s: frame %+v, want %v", seed, c.session, id, f, want)
				}
			}
		}
	}
	turns := 0
	for _, c := range clients {
		turns += c.turns
	}
	if n := len(s.sim.Stored(streams.Result)); n != turns {
		s.t.Errorf("seed %d: %d results of %d turns", seed, n, turns)
	}
	for _, m := range s.sim.Stored(streams.Ready) {
		s.t.Errorf("seed %d: left in READY: %s", seed, m.Subject)
	}
}

// Flags to look at more seeds, or at one again.
var (
	first = flag.Uint64("first", 1, "first seed")
	seeds = flag.Uint64("seeds", 0, "number of seeds per case, 0 for the default")
)

var lossy = simrun.Net{MinDelay: 50 * time.Microsecond, MaxDelay: 5 * time.Millisecond, LoseAck: 0.02, Redeliver: 0.02, LoseCore: 0.03}

// TestTurns: the whole path, first on a good network, then with everything at once.
func TestTurns(t *testing.T) {
	for _, c := range []struct {
		name  string
		f     faults
		seeds uint64
	}{
		{"calm", faults{tier: 1 << 20}, 2},
		{"lossy", faults{net: lossy, tier: 1 << 20}, 4},
		{"small tier", faults{net: lossy, tier: 9}, 4},
		{"flips", faults{net: lossy, tier: 1 << 20, flips: true}, 4},
		{"crashes", faults{net: lossy, tier: 1 << 20, crashes: true}, 25},
		{"cancels", faults{net: lossy, tier: 1 << 20, cancels: true}, 10},
		{"everything", faults{net: lossy, tier: 20, flips: true, crashes: true, cancels: true}, 25},
	} {
		t.Run(c.name, func(t *testing.T) {
			if *seeds > 0 {
				c.seeds = *seeds
			}
			for seed := range c.seeds {
				play(t, *first+seed, c.f)
				if t.Failed() {
					t.Fatalf("repeat it with: go test ./simturn -run '%s$' -first %d -seeds 1", t.Name(), *first+seed)
				}
			}
		})
	}
}

// TestSameSeed is invariant 9: the same seed gives the same bytes, another seed
// others.
func TestSameSeed(t *testing.T) {
	f := faults{net: lossy, tier: 20, flips: true, crashes: true}
	a, b, c := play(t, 5, f), play(t, 5, f), play(t, 6, f)
	if a != b {
		t.Errorf("two runs of one seed differ: %s, %s", a, b)
	}
	if a == c {
		t.Error("two seeds gave one run")
	}
}

// TestPoison: a turn that aborts its engine, beside 100 good turns on four
// executors: two deaths, one dead letter, 100 results.
func TestPoison(t *testing.T) {
	for seed := range uint64(10) {
		s := newStack(t, *first+seed, simrun.Net{MinDelay: 50 * time.Microsecond, MaxDelay: 5 * time.Millisecond},
			schemas.RolePrefill, schemas.RoleDecode, schemas.RoleDecode, schemas.RoleMixed)
		s.poison = "bad"
		var clients []*client
		for i := range 25 {
			clients = append(clients, s.client(fmt.Sprintf("s%d", i), 4))
		}
		bad := s.client(s.poison, 1)
		for step, all := 0, false; !all; step++ {
			if err := s.sim.RunFor(50 * time.Millisecond); err != nil {
				t.Fatal(err)
			}
			all = bad.see()
			for _, c := range clients {
				all = c.see() && all
			}
			if step > 20*300 {
				t.Fatalf("seed %d: turns are left after 300 s:%s", *first+seed, left(clients))
			}
		}
		if err := s.sim.RunFor(5 * time.Second); err != nil {
			t.Fatal(err)
		}
		bad.failed = nil // as it should
		s.check(*first+seed, append(clients, bad))
		if n := len(s.sim.Stored(streams.Dead)); s.deaths != 2 || n != 1 || bad.results["u0"].Failure.Code != schemas.CodePoison {
			t.Errorf("seed %d: %d deaths, %d dead letters, %+v", *first+seed, s.deaths, n, bad.results["u0"].Failure)
		}
	}
}
