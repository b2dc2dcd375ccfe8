package turns

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
)

// TestEvent: what an agent says is stored as the contract has it, and an id makes
// a repeat harmless.
func TestEvent(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, k *fake) {
		req := EventRequest{Session: "s", Kind: schemas.EventToolWait, Tool: "pytest", Expected: 3 * time.Second, ID: "w1"}
		seq, err := k.c.Event(t.Context(), req)
		if err != nil || seq == 0 {
			t.Fatalf("sequence %d, %v", seq, err)
		}
		if again, err := k.c.Event(t.Context(), req); err != nil || again != seq {
			t.Errorf("the repeat has sequence %d, %v; want %d", again, err, seq)
		}
		req.ID = ""
		if other, err := k.c.Event(t.Context(), req); err != nil || other <= seq {
			t.Errorf("an event of its own has sequence %d, %v", other, err)
		}
		st, err := k.js.Stream(t.Context(), streams.Agent)
		if err != nil {
			t.Fatal(err)
		}
		m, err := st.GetMsg(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		got := new(schemas.Event)
		if err := schemas.Decode(m.Data, got); err != nil {
			t.Fatal(err)
		}
		want := &schemas.Event{Header: schemas.H(), Tool: "pytest", ExpectedNS: int64(3 * time.Second)}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("stored (-want +got):\n%s", d)
		}
		if sub, err := schemas.ParseSubject(m.Subject); err != nil || sub.Get("kind") != "tool_wait" || sub.Get("tenant") != "default" {
			t.Errorf("subject %s, %v", m.Subject, err)
		}
	})
}

func TestEventRefused(t *testing.T) {
	for name, req := range map[string]EventRequest{
		"no session":     {Kind: schemas.EventUserWait},
		"a turn":         {Session: "s", Kind: schemas.EventTurn},
		"unknown kind":   {Session: "s", Kind: "coffee"},
		"bad branch":     {Session: "s", Kind: schemas.EventBranchEnd, Branch: "a.b"},
		"bad id":         {Session: "s", Kind: schemas.EventUserWait, ID: "a b"},
		"negative wait":  {Session: "s", Kind: schemas.EventToolWait, Expected: -1},
		"long reason":    {Session: "s", Kind: schemas.EventCompacted, Reason: string(make([]byte, 1025))},
		"cancel of none": {Session: "s", Kind: schemas.EventCancel},
	} {
		t.Run(name, func(t *testing.T) {
			if req.Tenant == "" {
				req.Tenant = schemas.DefaultTenant
			}
			if _, err := eventMessage(&req); !errors.Is(err, ErrInvalid) {
				t.Errorf("error is %v, want ErrInvalid", err)
			}
		})
	}
}

func TestEventWithoutWeir(t *testing.T) {
	inBubble(t, Options{BusyAfter: time.Second}, func(t *testing.T, k *fake) {
		if err := k.js.DeleteStream(context.Background(), streams.Agent); err != nil {
			t.Fatal(err)
		}
		if _, err := k.c.Event(t.Context(), EventRequest{Session: "s", Kind: schemas.EventSessionEnd}); !errors.Is(err, ErrBusy) {
			t.Errorf("error is %v, want ErrBusy", err)
		}
	})
}
