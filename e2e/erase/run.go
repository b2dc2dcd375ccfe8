package erase

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/e2e/show"
	"github.com/weir-dev/weir/e2e/stack"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/erase"
	"github.com/weir-dev/weir/streams"
)

// The sessions of the run.
const (
	victim = "victim"
	keeper = "keeper"
)

// Outcome is what a run found.
type Outcome struct {
	Report erase.Report
	Again  erase.Report // of a second erase
	// Missing are words that were not found before where they must be: "word in store".
	Missing []string
	// Found are words that were found afterwards where they must not be.
	Found []string
	// Lost are words and pages of the other session that are gone.
	Lost        []string
	Before      []string // finds before, "word in store"
	PagesBefore int      // pages of KV memory that only the session had filled
	PagesOnDisk int      // of those, the ones that lay on the disk below it too
	PagesAfter  int      // of those, the ones that are still there, in memory or on disk
	Took        time.Duration
}

// Figures are the measured values.
func (o *Outcome) Figures() []show.Figure {
	return []show.Figure{
		{Name: "erase.canary_found", Value: float64(len(o.Found) + o.PagesAfter), Unit: "finds"},
		{Name: "erase.canary_before", Value: float64(len(o.Before)), Unit: "finds"},
		{Name: "erase.kv_pages_before", Value: float64(o.PagesBefore), Unit: "pages"},
		{Name: "erase.kv_pages_on_disk", Value: float64(o.PagesOnDisk), Unit: "pages"},
		{Name: "erase.seconds", Value: o.Took.Seconds(), Unit: "s"},
	}
}

// Run runs a stack, plants the words, erases one of two sessions and searches. The
// error says what would make the figures worthless, such as a word that the search did
// not find before.
func Run(ctx context.Context) ([]show.Figure, error) {
	o, err := Try(ctx)
	if err != nil {
		return nil, err
	}
	if len(o.Missing) > 0 || len(o.Lost) > 0 || o.PagesBefore == 0 || o.PagesOnDisk == 0 {
		return o.Figures(), fmt.Errorf("not found before: %v; lost: %v; %d KV pages, %d of them on disk", o.Missing, o.Lost, o.PagesBefore, o.PagesOnDisk)
	}
	if len(o.Found) > 0 {
		err = fmt.Errorf("found after the erase: %v", o.Found)
	}
	return o.Figures(), err
}

// Try is one run.
func Try(ctx context.Context) (o *Outcome, err error) {
	ctx, cancel := context.WithTimeout(ctx, 4*time.Minute)
	defer cancel()
	disk, err := os.MkdirTemp("", "weir-erase-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(disk)) }()
	// So little memory that the sessions' blocks are written to disk too.
	s, err := stack.Launch(ctx, stack.Options{Args: []string{"--kv-mem", "12MiB", "--kv-disk", disk, "--kv-disk-bytes", "256MiB"}})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	nc, err := s.Connect("e2e-erase")
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	c, err := s.Client()
	if err != nil {
		return nil, err
	}
	r := &run{s: s, js: js, disk: disk, p: &planter{c: c, js: js, model: s.Ready.Model}, o: &Outcome{}}
	return r.o, r.all(ctx)
}

type run struct {
	s  *stack.Stack
	js jetstream.JetStream
	p  *planter
	o  *Outcome

	disk   string // the folder of the disk below the KV memory
	tokens string // the answer's tokens as they stand in messages
}

func (r *run) all(ctx context.Context) error {
	baseline, mine, err := r.plant(ctx)
	if err != nil {
		return err
	}
	if err := r.before(ctx); err != nil {
		return err
	}
	began := time.Now()
	opts := erase.Options{Conn: r.p.c.Conn(), Cell: r.s.Ready.Cell}
	rep, err := erase.Session(ctx, opts, schemas.DefaultTenant, victim)
	r.o.Took = time.Since(began)
	if err != nil {
		return err
	}
	r.o.Report = *rep
	if err := r.after(ctx, baseline, mine); err != nil {
		return err
	}
	// A lineage that starts anew reads what is stored: nothing may come back.
	pid, err := r.s.Kill("control", syscall.SIGKILL)
	if err != nil {
		return err
	}
	if _, err := r.s.WaitRestarted(ctx, "control", pid); err != nil {
		return err
	}
	if rep, err = erase.Session(ctx, opts, schemas.DefaultTenant, victim); err != nil {
		return err
	}
	r.o.Again = *rep
	return r.after(ctx, baseline, mine)
}

// plant lets both sessions live and returns the KV pages of the other one and of the
// one that is to be erased.
func (r *run) plant(ctx context.Context) (baseline, mine pages, err error) {
	for _, s := range []struct{ id, word, answer string }{{keeper, wordOther, wordOther}, {victim, wordMessage, wordAnswer}} {
		tokens, err := r.p.forced(ctx, "The answer is "+s.answer+", which nobody else says. "+s.answer+".")
		if err != nil {
			return nil, nil, err
		}
		if err := r.p.session(ctx, s.id, s.word, tokens); err != nil {
			return nil, nil, err
		}
		now, err := r.kvPages()
		if err != nil {
			return nil, nil, err
		}
		if s.id == keeper {
			baseline = now
			continue
		}
		mine, r.tokens = now.minus(baseline), needle(tokens)
	}
	r.o.PagesBefore = len(mine)
	if err := r.p.rest(ctx, victim); err != nil {
		return nil, nil, err
	}
	if r.o.PagesOnDisk, err = r.onDisk(ctx, mine); err != nil {
		return nil, nil, err
	}
	return baseline, mine, r.settled(ctx)
}

// kvPages are those in memory and on the disk below it.
func (r *run) kvPages() (pages, error) {
	all, err := readPages(r.s.Ready.KVDir)
	if err != nil {
		return nil, err
	}
	more, err := readPages(r.disk)
	maps.Copy(all, more)
	return all, err
}

// onDisk waits until the disk has as many of a session's pages as it gets, and counts them.
func (r *run) onDisk(ctx context.Context, mine pages) (n int, err error) {
	for same := 0; same < 10; same++ {
		disk, err := readPages(r.disk)
		if err != nil {
			return 0, err
		}
		if now := mine.common(disk); now != n {
			n, same = now, 0
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	return n, nil
}

// settled waits until the dead letter is there and lineage has saved all of it.
func (r *run) settled(ctx context.Context) error {
	dead, err := r.js.Stream(ctx, streams.Dead)
	if err != nil {
		return err
	}
	for {
		info, err := dead.Info(ctx)
		if err != nil {
			return err
		}
		if info.State.Msgs > 0 {
			break
		}
		select {
		case <-ctx.Done():
			return errors.New("no dead letter came")
		case <-time.After(20 * time.Millisecond):
		}
	}
	// Forgetting what was never there makes lineage save its state.
	_, err = r.ask(ctx, "nobody", true)
	if err != nil {
		return err
	}
	for {
		sc := newScanner([]string{wordBody, wordMessage})
		if err := sc.streams(ctx, r.js); err != nil {
			return err
		}
		if sc.in(wordMessage, streams.Snap) {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.New("lineage saved nothing")
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (r *run) ask(ctx context.Context, session string, forget bool) (*schemas.SessionReply, error) {
	b, err := schemas.Encode(&schemas.SessionRequest{Header: schemas.H(), Tenant: schemas.DefaultTenant, Session: session, Forget: forget})
	if err != nil {
		return nil, err
	}
	m, err := r.p.c.Conn().RequestWithContext(ctx, schemas.SessionSubject(r.s.Ready.Cell), b)
	if err != nil {
		return nil, err
	}
	rep := new(schemas.SessionReply)
	return rep, schemas.Decode(m.Data, rep)
}

// scan searches everything.
func (r *run) scan(ctx context.Context) (*scanner, error) {
	words := []string{r.tokens}
	for w := range wantBefore {
		words = append(words, w)
	}
	slices.Sort(words)
	sc := newScanner(words)
	err := sc.streams(ctx, r.js)
	for _, dir := range []string{r.s.Dir(), r.s.Ready.KVDir, r.disk} {
		err = errors.Join(err, sc.files(dir))
	}
	return sc, err
}

func (r *run) before(ctx context.Context) error {
	sc, err := r.scan(ctx)
	if err != nil {
		return err
	}
	for _, f := range sc.finds() {
		r.o.Before = append(r.o.Before, f.word+" in "+f.store)
	}
	for word, stores := range wantBefore {
		for _, store := range stores {
			if !sc.in(word, store) {
				r.o.Missing = append(r.o.Missing, word+" in "+store)
			}
		}
	}
	if !sc.in(r.tokens, streams.Result) {
		r.o.Missing = append(r.o.Missing, "tokens in "+streams.Result)
	}
	slices.Sort(r.o.Missing)
	return nil
}

func (r *run) after(ctx context.Context, baseline, mine pages) error {
	sc, err := r.scan(ctx)
	if err != nil {
		return err
	}
	for _, f := range sc.finds() {
		if f.word != wordOther {
			r.o.Found = append(r.o.Found, f.word+" in "+f.store)
		}
	}
	for _, store := range wantBefore[wordOther] {
		if !sc.in(wordOther, store) {
			r.o.Lost = append(r.o.Lost, wordOther+" in "+store)
		}
	}
	now, err := r.kvPages()
	if err != nil {
		return err
	}
	r.o.PagesAfter = max(r.o.PagesAfter, mine.common(now))
	if kept := baseline.common(now); kept < len(baseline)*9/10 {
		r.o.Lost = append(r.o.Lost, fmt.Sprintf("%d of %d KV pages of the other session", len(baseline)-kept, len(baseline)))
	}
	rep, err := r.ask(ctx, victim, false)
	if err != nil {
		return err
	}
	if rep.Found {
		r.o.Found = append(r.o.Found, "the session in lineage")
	}
	return nil
}
