package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
)

// staleAfter: an executor that is silent so long counts as gone, as for the reaper.
const staleAfter = 3 * time.Second

// fleetMax bounds the executors that are remembered; a cell has at most 256.
const fleetMax = 4096

// fleet is what the heartbeats say about the executors of a cell.
type fleet struct {
	nc     *nats.Conn
	sub    *nats.Subscription
	static []Model
	begun  int64

	mu   sync.Mutex
	seen map[string]sign
}

// sign is an executor's last heartbeat.
type sign struct {
	pool string
	role schemas.Role
	at   time.Time
}

func newFleet(nc *nats.Conn, cell string, static []Model) (*fleet, error) {
	f := &fleet{nc: nc, static: static, seen: map[string]sign{}, begun: time.Now().Unix()}
	sub, err := nc.Subscribe(schemas.HBSubject(cell, "*"), func(m *nats.Msg) {
		h := new(schemas.Heartbeat)
		if schemas.Decode(m.Data, h) == nil {
			f.heard(h, time.Now())
		}
	})
	f.sub = sub
	return f, err
}

func (f *fleet) close() { _ = f.sub.Unsubscribe() }

func (f *fleet) heard(h *schemas.Heartbeat, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if h.Dead {
		delete(f.seen, h.Executor)
		return
	}
	if _, known := f.seen[h.Executor]; !known && len(f.seen) >= fleetMax {
		for id, s := range f.seen {
			if now.Sub(s.at) > staleAfter {
				delete(f.seen, id)
			}
		}
		if len(f.seen) >= fleetMax {
			return
		}
	}
	f.seen[h.Executor] = sign{pool: h.Pool, role: h.Role, at: now}
}

// models are the static ones, then those of executors that were ever heard, by name.
func (f *fleet) models() []Model {
	out := append([]Model(nil), f.static...)
	have := map[string]bool{}
	for _, m := range out {
		have[m.Name] = true
	}
	f.mu.Lock()
	var more []string
	for _, s := range f.seen {
		if s.pool != "" && !have[s.pool] {
			have[s.pool] = true
			more = append(more, s.pool)
		}
	}
	f.mu.Unlock()
	sort.Strings(more)
	for _, name := range more {
		out = append(out, Model{Name: name, Created: f.begun})
	}
	return out
}

func (f *fleet) defaultModel() string {
	if ms := f.models(); len(ms) > 0 {
		return ms[0].Name
	}
	return ""
}

// problem says which phase of which pool nobody does; empty when there is none.
func (f *fleet) problem(now time.Time) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	type phases struct{ prefill, decode bool }
	pools := map[string]phases{}
	for _, s := range f.seen {
		if now.Sub(s.at) > staleAfter {
			continue
		}
		p := pools[s.pool]
		p.prefill = p.prefill || s.role.Takes(schemas.StagePrefill)
		p.decode = p.decode || s.role.Takes(schemas.StageDecode)
		pools[s.pool] = p
	}
	var out []string
	for name, p := range pools {
		switch {
		case p.prefill && p.decode:
			return "" // one pool that serves makes the gateway useful
		case !p.prefill:
			out = append(out, fmt.Sprintf("no executor of pool %q prefills", name))
		default:
			out = append(out, fmt.Sprintf("no executor of pool %q decodes", name))
		}
	}
	if len(out) == 0 {
		return "no executor's heartbeat was heard within 3 s"
	}
	sort.Strings(out)
	return strings.Join(out, "; ")
}

// ready answers /readyz: 200 when a turn can be taken and worked on.
func (g *Gateway) ready(w http.ResponseWriter, r *http.Request) {
	problems := g.problems(r.Context())
	status := http.StatusOK
	if len(problems) > 0 {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, struct {
		Ready    bool     `json:"ready"`
		Problems []string `json:"problems,omitempty"`
	}{len(problems) == 0, problems})
}

func (g *Gateway) problems(ctx context.Context) []string {
	if !g.o.Conn.IsConnected() {
		return []string{"NATS is not reachable"}
	}
	if g.stopping.Err() != nil {
		return []string{"the gateway is shutting down"}
	}
	var out []string
	js, err := jetstream.New(g.o.Conn)
	if err != nil {
		return []string{err.Error()}
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	for _, name := range [...]string{streams.Agent, streams.Ready, streams.Out, streams.Result} {
		if _, err := js.Stream(ctx, name); errors.Is(err, jetstream.ErrStreamNotFound) {
			out = append(out, "stream "+name+" does not exist")
		} else if err != nil {
			return append(out, "JetStream does not answer: "+err.Error())
		}
	}
	if p := g.fleet.problem(time.Now()); p != "" {
		out = append(out, p)
	}
	return out
}

type modelObject struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
	// The same for Anthropic's clients.
	Type        string `json:"type"`
	DisplayName string `json:"display_name"`
	CreatedAt   string `json:"created_at"` // RFC 3339
}

func objectOf(m Model) modelObject {
	return modelObject{
		ID: m.Name, Object: "model", Created: m.Created, OwnedBy: "weir",
		Type: "model", DisplayName: m.Name, CreatedAt: time.Unix(m.Created, 0).UTC().Format(time.RFC3339),
	}
}

func (g *Gateway) listModels(w http.ResponseWriter, _ *http.Request) {
	list := struct {
		Object  string        `json:"object"`
		Data    []modelObject `json:"data"`
		HasMore bool          `json:"has_more"`
		FirstID *string       `json:"first_id"`
		LastID  *string       `json:"last_id"`
	}{Object: "list", Data: []modelObject{}}
	for _, m := range g.fleet.models() {
		list.Data = append(list.Data, objectOf(m))
	}
	if n := len(list.Data); n > 0 {
		list.FirstID, list.LastID = &list.Data[0].ID, &list.Data[n-1].ID
	}
	writeJSON(w, http.StatusOK, list)
}

func (g *Gateway) oneModel(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("model")
	for _, m := range g.fleet.models() {
		if m.Name == name {
			writeJSON(w, http.StatusOK, objectOf(m))
			return
		}
	}
	refuse(w, r, g.withModels(&apiError{
		Status: http.StatusNotFound, Type: typeInvalid, Code: schemas.CodeModel, Param: "model", Message: fmt.Sprintf("The model %q does not exist", name),
	}))
}
