package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/turns"
	"github.com/weir-dev/weir/streams"
)

// TestEvents: what is posted is what lineage reads, in that order.
func TestEvents(t *testing.T) {
	k := newFake(t, Options{})
	a := k.post("/v1/sessions/s 1/events", `{"kind":"tool_wait","branch":"b","tool":"bash","expected_seconds":1.5}`)
	session := schemas.CleanID("s 1")
	if a.status != 202 || a.object(t)["session"] != session {
		t.Fatalf("%d %s", a.status, a.body)
	}
	e := within(t, k.events)
	if e.Branch != "b" || e.Tool != "bash" || e.ExpectedNS != 1_500_000_000 {
		t.Errorf("the event is %+v", e)
	}
	a = k.post("/v1/sessions/"+session+"/events", `[
		{"kind":"branch_fork","branch":"c/d","parent":"b"}, {"kind":"user_wait"}, {"kind":"compacted","branch":"b","reason":"full"},
		{"kind":"cancel","turn":"t 1"}, {"kind":"session_end"}]`)
	m := a.object(t)
	if a.status != 202 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	last := 1.0 // the first request's sequence
	for i, kind := range []string{"branch_fork", "user_wait", "compacted", "cancel", "session_end"} {
		seq, _ := at(m, "events", i, "seq").(float64)
		if at(m, "events", i, "kind") != kind || seq <= last {
			t.Errorf("event %d of %s is not a %s behind %v", i, a.body, kind, last)
		}
		last = seq
		e := within(t, k.events)
		switch {
		case kind == "branch_fork" && (e.Branch != schemas.CleanID("c/d") || e.Parent != "b"):
			t.Errorf("the fork is %+v", e)
		case kind == "cancel" && e.Turn != schemas.CleanID("t 1"):
			t.Errorf("the cancel is %+v", e)
		}
	}
}

func TestBadEvents(t *testing.T) {
	k := newFake(t, Options{})
	many := strings.TrimSuffix(strings.Repeat(`{"kind":"user_wait"},`, maxEvents+1), ",")
	for name, c := range map[string]struct{ body, code, param, says string }{
		"empty":         {``, "invalid_request", "", "empty"},
		"no json":       {`{"kind":`, "invalid_request", "", "JSON"},
		"no kind":       {`{}`, "invalid_request", "kind", "session_end"},
		"turn":          {`{"kind":"turn"}`, "invalid_request", "kind", "session_end"},
		"unknown kind":  {`{"kind":"nap"}`, "invalid_request", "kind", "nap"},
		"unknown field": {`{"kind":"user_wait","foo":1}`, "unknown_parameter", "foo", "foo"},
		"type":          {`{"kind":"tool_wait","expected_seconds":"2"}`, "invalid_request", "expected_seconds", "number"},
		"negative":      {`{"kind":"tool_wait","expected_seconds":-1}`, "invalid_request", "expected_seconds", "-1"},
		"too long":      {`{"kind":"tool_wait","expected_seconds":1e300}`, "invalid_request", "expected_seconds", "1e+300"},
		"no turn":       {`{"kind":"cancel"}`, "invalid_request", "turn", "turn"},
		"tool":          {`{"kind":"tool_wait","tool":"` + strings.Repeat("x", 300) + `"}`, "invalid_request", "tool", "256"},
		"no events":     {`[]`, "invalid_request", "", "0 events"},
		"too many":      {`[` + many + `]`, "invalid_request", "", "257 events"},
		"one of two":    {`[{"kind":"user_wait"},{"kind":"nap"}]`, "invalid_request", "kind", "event 1"},
		"number":        {`7`, "invalid_request", "", "object"},
	} {
		a := k.post("/v1/sessions/s/events", c.body)
		m := a.object(t)
		param, _ := at(m, "error", "param").(string)
		says, _ := at(m, "error", "message").(string)
		if a.status != 400 || at(m, "error", "code") != c.code || param != c.param || !strings.Contains(says, c.says) {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	select {
	case e := <-k.events:
		t.Errorf("a refused request published %+v", e)
	default:
	}
	if a := k.do(http.MethodGet, "/v1/sessions/s/events", nil); a.status != 405 {
		t.Errorf("GET gives %d", a.status)
	}
}

// TestEventsOnce: a request that is repeated under its key stores nothing again.
func TestEventsOnce(t *testing.T) {
	k := newFake(t, Options{})
	body := `[{"kind":"tool_wait","branch":"b"},{"kind":"tool_wait","branch":"b"}]`
	first := k.post("/v1/sessions/s/events", body, headerIdem, "key 1")
	again := k.post("/v1/sessions/s/events", body, headerIdem, "key 1")
	if first.status != 202 || again.body != first.body {
		t.Errorf("first %s, again %s", first.body, again.body)
	}
	st, err := k.js.Stream(t.Context(), streams.Agent)
	if err != nil {
		t.Fatal(err)
	}
	if n := st.CachedInfo().State.Msgs; n != 2 {
		t.Errorf("%d events are stored, want 2", n)
	}
}

func TestEventsWhenNobodyTakesThem(t *testing.T) {
	k := newFake(t, Options{Turns: turns.Options{BusyAfter: 1, AckTimeout: 1}})
	if err := k.js.DeleteStream(t.Context(), streams.Agent); err != nil {
		t.Fatal(err)
	}
	a := k.post("/v1/sessions/s/events", `{"kind":"user_wait"}`)
	if a.status != 503 || a.header.Get("Retry-After") == "" || !strings.Contains(a.body, "0 of 1") {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestShowSession(t *testing.T) {
	k := newFake(t, Options{Cell: "c7"})
	if a := k.do(http.MethodGet, "/v1/sessions/s", nil); a.status != 503 || !strings.Contains(a.body, "c7") {
		t.Errorf("without lineage: %d %s", a.status, a.body)
	}
	sub, err := k.nc.Subscribe(schemas.SessionSubject("c7"), func(m *nats.Msg) {
		in, err := schemas.DecodeMsg(m.Subject, m.Data)
		if err != nil {
			t.Error(err)
			return
		}
		out := &schemas.SessionReply{Header: schemas.H()}
		switch r := in.SessionReq; r.Session {
		case "s":
			out.Found, out.Events = true, map[string]int{"tool_wait": 10}
			out.Branches = []schemas.BranchInfo{{ID: "main", State: "running", Tail: r.Turn}}
		case "broken":
			out.Error = "it broke"
		}
		b, err := schemas.Encode(out)
		if err != nil {
			t.Error(err)
			return
		}
		if err := m.Respond(b); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := k.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	a := k.do(http.MethodGet, "/v1/sessions/s?turn=t1", nil)
	m := a.object(t)
	if a.status != 200 || at(m, "branches", 0, "id") != "main" || at(m, "branches", 0, "tail") != "t1" || at(m, "events", "tool_wait") != 10.0 {
		t.Errorf("%d %s", a.status, a.body)
	}
	for path, want := range map[string]int{"/v1/sessions/none": 404, "/v1/sessions/broken": 500, "/v1/sessions/s?turn=a.b": 400} {
		if a := k.do(http.MethodGet, path, nil); a.status != want {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
}

func TestEraseSession(t *testing.T) {
	k := newFake(t, Options{})
	if a := k.do(http.MethodDelete, "/v1/sessions/s", nil); a.status != 501 || !strings.Contains(a.body, "weir session delete") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := k.do(http.MethodPut, "/v1/sessions/s", nil); a.status != 405 || a.header.Get("Allow") != "GET, DELETE" {
		t.Errorf("PUT: %d, %v", a.status, a.header)
	}
	k = newFake(t, Options{Erase: func(_ context.Context, tenant, session string) (any, error) {
		if session == "busy" {
			return nil, &turns.BusyError{Reason: "turns are in work"}
		}
		if session == "broken" {
			return nil, errors.New("it broke")
		}
		return map[string]string{"erased": tenant + "/" + session}, nil
	}})
	if a := k.do(http.MethodDelete, "/v1/sessions/s", nil); a.status != 200 || a.object(t)["erased"] != "default/s" {
		t.Errorf("%d %s", a.status, a.body)
	}
	for id, want := range map[string]int{"busy": 503, "broken": 500} {
		if a := k.do(http.MethodDelete, "/v1/sessions/"+id, nil); a.status != want {
			t.Errorf("%s: %d %s", id, a.status, a.body)
		}
	}
}

// FuzzEvents: whatever is posted is refused with a reason, or can be published.
func FuzzEvents(f *testing.F) {
	for _, s := range []string{
		`{"kind":"tool_wait","branch":"b","tool":"x","expected_seconds":1.5}`, `[{"kind":"cancel","turn":"t"},{"kind":"user_wait"}]`, ` [1]`, `{"kind":7}`, `null`, `[[]]`,
		`{"kind":"branch_fork","branch":"\u0000","parent":"\ud800"}`, `{"kind":"tool_wait","expected_seconds":9e18}`, `{"kind":"user_wait"} {}`,
	} {
		f.Add([]byte(s), "key")
	}
	f.Fuzz(func(t *testing.T, body []byte, key string) {
		list, e := readEvents(body, "default", "s", http.Header{headerIdem: {key}})
		if e != nil {
			if e.Status < 400 || e.Message == "" || !json.Valid(e.body()) {
				t.Errorf("%q: %+v", body, e)
			}
			return
		}
		if len(list) == 0 || len(list) > maxEvents {
			t.Errorf("%q gives %d events", body, len(list))
		}
		ids := map[string]bool{}
		for _, ev := range list {
			if err := turns.CheckEvent(ev); err != nil {
				t.Errorf("%q: %v", body, err)
			}
			if ids[ev.ID] && ev.ID != "" {
				t.Errorf("%q: two events have the id %s", body, ev.ID)
			}
			ids[ev.ID] = true
		}
	})
}
