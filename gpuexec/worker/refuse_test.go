package worker_test

import (
	"strings"
	"testing"

	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/gpuexec/nullengine"
	"github.com/weir-dev/weir/schemas"
)

// TestBadOperations: each is an error that says what is wrong, and the worker goes
// on.
func TestBadOperations(t *testing.T) {
	r := newRig(t, 0, newTier())
	r.open(&schemas.OpenOp{Ready: turn(10, 3)})
	bias := turn(10, 3)
	bias.Sampling.Bias = map[string]float64{"x": 1}
	far := turn(10, 3)
	far.Sampling.Bias = map[string]float64{"99999": 1}
	unknown := turn(10, 3)
	unknown.Prompt.Tail[4] = 5000
	forced := turn(10, 3)
	forced.Force = schemas.Tokens{-1}
	grammar := turn(10, 3)
	grammar.Sampling.Grammar = `root ::= "a"`
	open := func(seq int32, j *schemas.Ready, d schemas.Tokens) *schemas.Op {
		return &schemas.Op{Open: &schemas.OpenOp{Seq: seq, Stage: schemas.StageDecode, Ready: j, Delivered: d}}
	}
	for name, c := range map[string]struct {
		op   *schemas.Op
		code string
		text string
	}{
		"open twice":            {open(0, turn(10, 3), nil), schemas.CodeEngine, "not free"},
		"no such sequence":      {open(9, turn(10, 3), nil), schemas.CodeEngine, "9"},
		"negative sequence":     {open(-1, turn(10, 3), nil), schemas.CodeEngine, "-1"},
		"prompt token":          {open(1, unknown, nil), schemas.CodeInvalid, "prompt token 4 is 5000"},
		"forced token":          {open(1, forced, nil), schemas.CodeInvalid, "forced token 0 is -1"},
		"delivered token":       {open(1, turn(10, 3), schemas.Tokens{700}), schemas.CodeInvalid, "700"},
		"bias without a number": {open(1, bias, nil), schemas.CodeInvalid, "not a number"},
		"bias of no token":      {open(1, far, nil), schemas.CodeInvalid, "99999"},
		"grammar":               {open(1, grammar, nil), schemas.CodeInvalid, "cannot constrain"},
		"prefill":               {&schemas.Op{Prefill: &schemas.PrefillOp{Seqs: []int32{2}}}, schemas.CodeEngine, "not open"},
		"decode":                {&schemas.Op{Decode: &schemas.DecodeOp{Seqs: []int32{7}}}, schemas.CodeEngine, "not open"},
		"seal":                  {&schemas.Op{Seal: &schemas.SealOp{Seq: 2}}, schemas.CodeEngine, "not open"},
		"drop":                  {&schemas.Op{Drop: &schemas.DropOp{Seq: 77}}, schemas.CodeEngine, "77"},
		"nothing":               {&schemas.Op{}, schemas.CodeEngine, "not for the engine"},
	} {
		if d := r.do(c.op); d.Code != c.code || !strings.Contains(d.Err, c.text) {
			t.Errorf("%s: %q (%s), want %s with %q", name, d.Err, d.Code, c.code, c.text)
		}
	}
	var a answer
	r.decode(0, &a, 4, 100)
	if len(a.tokens) != 3 {
		t.Errorf("the open sequence was harmed: %+v", a)
	}
	r.drop(0)
	r.drop(0)
	if r.eng.Len(0) != 0 {
		t.Error("dropped, and still there")
	}
	r.open(&schemas.OpenOp{Ready: turn(10, 3)})
}

// constrained is the fake engine with a grammar that allows one letter.
type constrained struct {
	*nullengine.Engine
	open *int
}

func (c constrained) Constrain(string) (gpuexec.Constraint, error) {
	*c.open++
	return &onlyX{c.open}, nil
}

type onlyX struct{ open *int }

func (x *onlyX) Mask(l []float32) {
	for i := range l {
		if i != 'x' {
			l[i] = -1e30
		}
	}
}
func (x *onlyX) Accept(int32) error { return nil }
func (x *onlyX) Close()             { *x.open-- }
