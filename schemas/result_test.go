package schemas_test

import (
	"testing"

	"github.com/weir-dev/weir/schemas"
)

// TestKnown pins the digest that callers hold on to, and shows what it depends on.
func TestKnown(t *testing.T) {
	base := schemas.Result{Job: "0123456789abcdef0123", Status: schemas.StatusOK, Tokens: schemas.Tokens{5, 6, 2}}
	if got, want := base.Known(), "427327bca47a4ae0e1f5f85420c98bf4"; got != want {
		t.Errorf("Known = %s, want %s", got, want)
	}
	same := base
	same.Text, same.Attempt, same.DecodeOn = "other", 3, "e9"
	if same.Known() != base.Known() {
		t.Error("the digest depends on what a second attempt may change")
	}
	for name, change := range map[string]func(*schemas.Result){
		"job":    func(r *schemas.Result) { r.Job = "other" },
		"status": func(r *schemas.Result) { r.Status = schemas.StatusFailed },
		"tokens": func(r *schemas.Result) { r.Tokens = schemas.Tokens{5, 6} },
		"order":  func(r *schemas.Result) { r.Tokens = schemas.Tokens{6, 5, 2} },
	} {
		r := base
		change(&r)
		if r.Known() == base.Known() {
			t.Errorf("the digest does not depend on %s", name)
		}
	}
}

// TestBodyOfLocalKinds: kinds that never travel have no body to encode.
func TestBodyOfLocalKinds(t *testing.T) {
	for _, k := range []schemas.Kind{schemas.KindNone, schemas.KindTick, schemas.KindAck, schemas.KindPublished, schemas.KindBus, schemas.KindOp, schemas.KindOpDone} {
		m := schemas.Msg{Kind: k}
		if m.Body() != nil {
			t.Errorf("kind %d has a body", k)
		}
	}
}
