package erase

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
	"github.com/weir-dev/weir/streams/jsrun"
)

// plan is what must outlive a crash: it cannot be found any more once lineage has
// forgotten the session and its turns are gone. It holds names and digests, no content.
type plan struct {
	Tenant  string `json:"tenant"`
	Session string `json:"session"`
	// Turns are the ids of all turns that were found, sorted.
	Turns []string `json:"turns,omitempty"`
	// Keys name the ends of the session's chains of blocks.
	Keys []string `json:"keys,omitempty"`
	// Objects are the objects of the payload bucket that the session refers to, by
	// digest, with the id of their chunks.
	Objects map[string]string `json:"objects,omitempty"`
	// Asked: lineage was asked to forget. Told: its answer with the keys was written
	// down. A run that ended in between has lost them.
	Asked bool `json:"asked,omitempty"`
	Told  bool `json:"told,omitempty"`
}

// shard names the plan in SNAP: snap.erase.<shard>.
func (p *plan) shard() string {
	sum := sha256.Sum256([]byte(p.Tenant + "/" + p.Session))
	return hex.EncodeToString(sum[:16])
}

func (p *plan) subject() string { return schemas.SnapSubject("erase", p.shard()) }

// prepare reads the plan of an earlier run and adds what is there now.
func (e *eraser) prepare(ctx context.Context) error {
	e.plan = plan{Tenant: e.report.Tenant, Session: e.report.Session, Objects: map[string]string{}}
	if err := e.loadPlan(ctx); err != nil {
		return err
	}
	for _, name := range [...]string{
		streams.Agent, streams.Ready, streams.Prefill, streams.Decode, streams.Done, streams.Out, streams.Ckpt, streams.Result, streams.Branch, streams.Dead,
	} {
		s, err := e.js.Stream(ctx, name)
		if err != nil {
			return fmt.Errorf("stream %s: %w", name, err)
		}
		e.ends[name] = s.CachedInfo().State.LastSeq
	}
	if err := e.find(ctx); err != nil {
		return err
	}
	r, err := e.ask(ctx, false)
	if err != nil {
		return err
	}
	return e.learn(ctx, r)
}

func (e *eraser) loadPlan(ctx context.Context) error {
	s, err := e.js.Stream(ctx, streams.Snap)
	if err != nil {
		return fmt.Errorf("stream %s: %w", streams.Snap, err)
	}
	m, err := s.GetLastMsgForSubject(ctx, e.plan.subject())
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	var snap schemas.Snap
	if err := schemas.Decode(m.Data, &snap); err != nil {
		return err
	}
	e.report.Found = true
	if err := json.Unmarshal(snap.State, &e.plan); err != nil {
		return fmt.Errorf("the plan of an earlier run cannot be read: %w", err)
	}
	if e.plan.Objects == nil {
		e.plan.Objects = map[string]string{}
	}
	return nil
}

// learn adds what lineage told to the plan and writes it down.
func (e *eraser) learn(ctx context.Context, r *schemas.SessionReply) error {
	e.report.Found = e.report.Found || r.Found
	e.plan.Keys = union(e.plan.Keys, r.Keys)
	for _, digest := range r.Refs {
		if err := e.object(ctx, digest); err != nil {
			return err
		}
	}
	return e.savePlan(ctx)
}

// savePlan stores the plan. One that is too large for a message loses its turns
// first: their subjects carry the session anyway, jobs alone are named by turns.
func (e *eraser) savePlan(ctx context.Context) error {
	state, err := json.Marshal(e.plan)
	if err != nil {
		return err
	}
	if len(state) > maxPlan {
		short := e.plan
		short.Turns = nil
		if state, err = json.Marshal(short); err != nil {
			return err
		}
	}
	b, err := schemas.Encode(&schemas.Snap{Header: schemas.H(), Seqs: map[string]uint64{}, State: state})
	if err != nil {
		return fmt.Errorf("writing the plan down: %w", err)
	}
	if _, err := e.js.Publish(ctx, e.plan.subject(), b); err != nil {
		return fmt.Errorf("writing the plan down: %w", err)
	}
	return nil
}

// maxPlan leaves room for base64 in a message.
const maxPlan = 600 << 10

// finish removes the plan.
func (e *eraser) finish(ctx context.Context) error {
	s, err := e.js.Stream(ctx, streams.Snap)
	if err != nil {
		return err
	}
	_, err = jsrun.Wipe(ctx, s, e.plan.subject(), s.CachedInfo().State.LastSeq)
	return err
}

// union merges two lists, sorted.
func union(a, b []string) []string {
	out := slices.Concat(a, b)
	slices.Sort(out)
	return slices.Compact(out)
}
