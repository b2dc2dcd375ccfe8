package turns

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weir-dev/weir/schemas"
)

// respond answers every turn that is published to this session.
func (k *fake) respond(session string) {
	k.t.Helper()
	_, err := k.nc.Subscribe("agent.default."+session+".turn", func(m *nats.Msg) {
		in, err := schemas.DecodeMsg(m.Subject, m.Data)
		if err != nil {
			k.t.Error(err)
			return
		}
		r := k.resultOf(1, 12)
		r.Session, r.Turn = session, in.Turn.Weir.Turn
		if in.Turn.Model == "nope" {
			r.Status, r.Failure = schemas.StatusFailed, &schemas.Failure{Code: schemas.CodeModel, Message: "no such model"}
		}
		k.send(schemas.ResultSubject(r.Tenant, r.Session, r.Turn), r)
	})
	if err != nil {
		k.t.Fatal(err)
	}
	k.settle()
}

func TestService(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, k *fake) {
		s, err := Serve(k.nc, k.c, ServeOptions{MaxInFlight: 2})
		if err != nil {
			t.Fatal(err)
		}
		k.respond("agent")
		ask := func(body string) *nats.Msg {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			m, err := k.c.nc.RequestMsgWithContext(ctx, &nats.Msg{
				Subject: schemas.TurnService, Data: []byte(body), Header: nats.Header{HeaderSession: {"agent"}},
			})
			if err != nil {
				t.Fatal(err)
			}
			return m
		}
		var r schemas.Result
		if m := ask(`{"messages":[{"role":"user","content":"hi"}],"stream":true}`); json.Unmarshal(m.Data, &r) != nil || len(r.Tokens) != 12 || r.Session != "agent" {
			t.Errorf("answer %s", m.Data)
		}
		for body, code := range map[string]string{
			`{`: "400", `{"foo":1}`: "400", `{"model":"nope","messages":[{}]}`: schemas.CodeModel, `{"weir":{"deadline_ns":1},"messages":[{}]}`: schemas.CodeDeadline,
		} {
			if m := ask(body); m.Header.Get("Nats-Service-Error-Code") != code {
				t.Errorf("%s gives %v %s, want code %s", body, m.Header, m.Data, code)
			}
		}
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestCancelIsStored(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, k *fake) {
		s := k.publish()
		if err := s.Cancel(t.Context(), "enough"); err != nil {
			t.Fatal(err)
		}
		st, err := k.js.Stream(t.Context(), "AGENT")
		if err != nil {
			t.Fatal(err)
		}
		m, err := st.GetMsg(t.Context(), 2)
		if err != nil {
			t.Fatal(err)
		}
		in, err := schemas.DecodeMsg(m.Subject, m.Data)
		if err != nil || in.Event == nil || in.Event.Turn != "t1" || in.Event.Reason != "enough" {
			t.Errorf("the stored message is %s %s, %v", m.Subject, m.Data, err)
		}
		s.Close()
		s.Close()
		if _, err := k.c.Result(t.Context(), k.ref); err == nil {
			t.Error("there is a result")
		}
	})
}

// TestIdleSubscriptionsEnd: a session's subscriptions are kept for a while and
// for a bounded number of sessions.
func TestIdleSubscriptionsEnd(t *testing.T) {
	inBubble(t, Options{IdleSessions: 2, IdleFor: time.Minute}, func(t *testing.T, k *fake) {
		for _, name := range []string{"a", "b", "c", "d"} {
			s, err := k.c.Publish(t.Context(), Request{Session: name, Turn: request(k, "x").Turn})
			if err != nil {
				t.Fatal(err)
			}
			s.Close()
		}
		if n := k.c.nc.NumSubscriptions(); n > 2*2+1 {
			t.Errorf("%d subscriptions for two kept sessions", n)
		}
		time.Sleep(3 * time.Minute)
		if n := k.c.nc.NumSubscriptions(); n > 1 {
			t.Errorf("%d subscriptions after an idle time", n)
		}
		k.want(k.readAfter(k.publish()), Position{}, 12)
	})
}

func (k *fake) readAfter(s *Stream) reading {
	k.frame(1, 0, 3)
	k.result(k.resultOf(1, 12))
	return k.read(s, Position{})
}
