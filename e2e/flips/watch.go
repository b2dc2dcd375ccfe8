package flips

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
)

func itoa(n int) string { return strconv.Itoa(n) }

// assigned is one assignment as the stream stored it.
type assigned struct {
	role schemas.Role
	by   string
	at   time.Time
}

type beat struct {
	schemas.Heartbeat
	at time.Time
}

// flipped is one role change as the executor reported it.
type flipped struct {
	executor string
	schemas.Flip
}

// watch listens to heartbeats, reports and assignments, and looks in both for a phase
// that nobody serves and for old assignments in force.
type watch struct {
	nc    *nats.Conn
	cell  string
	stops []func()

	mu       sync.Mutex
	changed  chan struct{}
	beats    map[string]beat
	inForce  map[string]uint64 // newest epoch seen in force, by executor
	roles    map[string]map[uint64]assigned
	newest   map[string]uint64 // epoch assigned last
	flips    []flipped
	seen     map[string]bool // flips that were reported before
	judging  bool            // all executors are known
	samples  int
	missing  int // looks at which nobody had a phase or was assigned it
	stale    int
	evicted  int
	problems []string
}

// silence after which an executor serves nothing, as the router has it.
const silence = 3 * time.Second

func newWatch(ctx context.Context, nc *nats.Conn, cell string) (*watch, error) {
	w := &watch{
		nc: nc, cell: cell, changed: make(chan struct{}), beats: map[string]beat{}, inForce: map[string]uint64{},
		roles: map[string]map[uint64]assigned{}, newest: map[string]uint64{}, seen: map[string]bool{},
	}
	for subject, take := range map[string]func(*schemas.Msg){
		schemas.HBSubject(cell, "*"):     func(m *schemas.Msg) { w.beat(m.Heartbeat) },
		schemas.ReportSubject(cell, "*"): func(m *schemas.Msg) { w.report(m.Report) },
		schemas.KVSubject(cell, "*"):     func(m *schemas.Msg) { w.evicted += len(m.KV.Evicted) },
	} {
		sub, err := nc.Subscribe(subject, func(m *nats.Msg) {
			msg, err := schemas.DecodeMsg(m.Subject, m.Data)
			if err != nil {
				return
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			take(&msg)
			close(w.changed)
			w.changed = make(chan struct{})
		})
		if err != nil {
			return nil, errors.Join(err, w.close())
		}
		w.stops = append(w.stops, func() { _ = sub.Unsubscribe() })
	}
	if err := w.followRoles(ctx); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

func (w *watch) followRoles(ctx context.Context) error {
	js, err := jetstream.New(w.nc)
	if err != nil {
		return err
	}
	c, err := js.OrderedConsumer(ctx, streams.Role, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, FilterSubjects: []string{schemas.RoleSubject(w.cell, "*")},
	})
	if err != nil {
		return err
	}
	cc, err := c.Consume(func(m jetstream.Msg) {
		var a schemas.Assignment
		s, err := schemas.ParseSubject(m.Subject())
		meta, metaErr := m.Metadata()
		if err != nil || metaErr != nil || schemas.Decode(m.Data(), &a) != nil {
			return
		}
		w.assigned(s.Get("executor"), meta.Sequence.Stream, assigned{a.Role, a.By, meta.Timestamp})
	})
	if err != nil {
		return err
	}
	w.stops = append(w.stops, cc.Stop)
	return nil
}

func (w *watch) close() error {
	for _, f := range w.stops {
		f()
	}
	return nil
}

func (w *watch) problem(format string, args ...any) {
	if len(w.problems) < 50 {
		w.problems = append(w.problems, fmt.Sprintf(format, args...))
	}
}

func (w *watch) assigned(id string, epoch uint64, a assigned) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.roles[id] == nil {
		w.roles[id] = map[uint64]assigned{}
	}
	w.roles[id][epoch] = a
	if epoch > w.newest[id] {
		w.newest[id] = epoch
		if w.judging {
			w.look()
		}
	}
}

// look counts when no executor that is heard has a phase, and none is assigned it: then
// nobody does it, and nobody is about to. One that changes counts for what it becomes, one
// that hangs for what it was told.
func (w *watch) look() {
	var newest time.Time
	for _, b := range w.beats {
		if b.at.After(newest) {
			newest = b.at
		}
	}
	prefill, decode := false, false
	for id := range w.roles {
		does := []schemas.Role{w.roles[id][w.newest[id]].role}
		if b, ok := w.beats[id]; ok && newest.Sub(b.at) < silence {
			does = append(does, b.Role)
		}
		for _, r := range does {
			prefill = prefill || r.Takes(schemas.StagePrefill)
			decode = decode || r.Takes(schemas.StageDecode)
		}
	}
	if w.samples++; !prefill || !decode {
		w.missing++
		w.problem("nobody does both phases or is about to: prefill %v, decode %v: %s", prefill, decode, w.state())
	}
}

// has lists the executors that are assigned a phase, by id.
func (w *watch) has(stage schemas.Stage, by string) (ids []string) {
	for id := range w.roles {
		if a := w.roles[id][w.newest[id]]; a.role.Takes(stage) && (by == "" || a.by == by) {
			ids = append(ids, id)
		}
	}
	sort.Strings(ids)
	return ids
}

func (w *watch) beat(h *schemas.Heartbeat) {
	if h.Dead {
		if b := w.beats[h.Executor]; b.Boot == h.Boot {
			delete(w.beats, h.Executor)
		}
		return
	}
	if h.Epoch > 0 && h.Role != schemas.RoleDraining {
		w.judge(h)
	}
	w.beats[h.Executor] = beat{*h, time.Now()}
}

// judge: the epoch in force never goes back, also over lives of the process, and the
// role in force is that of its epoch.
func (w *watch) judge(h *schemas.Heartbeat) {
	id := h.Executor
	if h.Epoch < w.inForce[id] {
		w.stale++
		w.problem("%s went back from epoch %d to %d", id, w.inForce[id], h.Epoch)
	}
	w.inForce[id] = max(w.inForce[id], h.Epoch)
	if a, ok := w.roles[id][h.Epoch]; ok && a.role != h.Role {
		w.stale++
		w.problem("%s is %s in epoch %d, assigned was %s", id, h.Role, h.Epoch, a.role)
	}
}

// report notes a role change. One that came into force although a newer assignment had
// been stored before the change began is an old assignment applied.
func (w *watch) report(r *schemas.Report) {
	f := r.Flip
	if f == nil {
		return
	}
	key := fmt.Sprint(r.Executor, f.Epoch, f.AtNS)
	if w.seen[key] {
		return
	}
	w.seen[key] = true
	w.flips = append(w.flips, flipped{r.Executor, *f})
	for epoch, a := range w.roles[r.Executor] {
		if epoch > f.Epoch && f.Back == "" && a.at.UnixNano() < f.AtNS {
			w.stale++
			w.problem("%s took epoch %d, which came %s after epoch %d was assigned", r.Executor, f.Epoch, time.Duration(f.AtNS-a.at.UnixNano()), epoch)
			break
		}
	}
}

// known waits until the first roles of n executors are in force.
func (w *watch) known(ctx context.Context, n int) error {
	err := w.wait(ctx, 30*time.Second, "first roles", func() bool { return len(w.inForce) == n && len(w.newest) == n })
	w.mu.Lock()
	defer w.mu.Unlock()
	w.judging, w.flips = true, nil
	return err
}

// sample looks every 20 ms until ctx ends.
func (w *watch) sample(ctx context.Context) {
	t := time.NewTicker(20 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		w.mu.Lock()
		w.look()
		w.mu.Unlock()
	}
}

// busiest is the executor that holds most decodes, "" when none does.
func (w *watch) busiest() (id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	most := 0
	for x, b := range w.beats {
		n := 0
		for _, h := range b.Held {
			if h.Stage == schemas.StageDecode {
				n++
			}
		}
		if n > most || n == most && n > 0 && x < id {
			id, most = x, n
		}
	}
	return id
}

func (w *watch) state() string {
	var ids []string
	for id := range w.roles {
		ids = append(ids, id)
	}
	sort.Strings(ids)
	s := ""
	for _, id := range ids {
		b := w.beats[id]
		s += fmt.Sprintf(" %s %s epoch %d, %s ago;", id, b.Role, b.Epoch, time.Since(b.at).Round(time.Millisecond))
	}
	return s
}

// wait waits until cond, which is called with the lock held, is true.
func (w *watch) wait(ctx context.Context, limit time.Duration, what string, cond func() bool) error {
	t := time.NewTimer(limit)
	defer t.Stop()
	for {
		w.mu.Lock()
		ok, changed := cond(), w.changed
		w.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-t.C:
			w.mu.Lock()
			defer w.mu.Unlock()
			return fmt.Errorf("flips: waited %s for: %s;%s", limit, what, w.state())
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// taken waits until an executor reports that epoch, or a later one, in force.
func (w *watch) taken(ctx context.Context, id string, epoch uint64, limit time.Duration) error {
	return w.wait(ctx, limit, fmt.Sprintf("%s in epoch %d", id, epoch), func() bool { return w.inForce[id] >= epoch })
}
