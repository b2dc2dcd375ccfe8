package telemetry

import (
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace"
	"pgregory.net/rapid"

	"github.com/weir-dev/weir/schemas"
)

const (
	tid = "0af7651916cd43dd8448eb211c80319c"
	sid = "b7ad6b7169203331"
)

func parentOf(flags string) string { return "00-" + tid + "-" + sid + "-" + flags }

func TestSampled(t *testing.T) {
	for p, want := range map[string]bool{
		"": false, parentOf("00"): false, parentOf("01"): true, parentOf("02"): false, parentOf("03"): true, parentOf("0a"): false,
		parentOf("0b"): true, parentOf("0f"): true, parentOf("fe"): false, parentOf("ff"): true, parentOf("0"): false,
		"01-" + tid + "-" + sid + "-01-later": true,
	} {
		if got := sampled(p); got != want {
			t.Errorf("%q: %v", p, got)
		}
	}
}

func TestContextOf(t *testing.T) {
	for p, want := range map[string]bool{
		parentOf("01"): true, parentOf("00"): true, "cc-" + tid + "-" + sid + "-01-later": true,
		"": false, parentOf("01") + "-x": false, "ff-" + tid + "-" + sid + "-01": false,
		"00-" + strings.Repeat("0", 32) + "-" + sid + "-01":    false,
		"00-" + tid + "-" + strings.Repeat("0", 16) + "-01":    false,
		"00-" + strings.ToUpper(tid) + "-" + sid + "-01":       false,
		"00_" + tid + "-" + sid + "-01":                        false,
		"00-" + tid + "-" + sid + "_01":                        false,
		"00-" + strings.Repeat("z", 32) + "-" + sid + "-01":    false,
		"00-" + tid + "-" + strings.Repeat("\x00", 16) + "-01": false,
	} {
		if got := contextOf(schemas.Trace{Parent: p}).IsValid(); got != want {
			t.Errorf("%q: valid is %v", p, got)
		}
	}
	sc := contextOf(schemas.Trace{Parent: parentOf("01"), State: "vendor=1"})
	if !sc.IsRemote() || !sc.IsSampled() || sc.TraceState().Get("vendor") != "1" {
		t.Errorf("got %+v", sc)
	}
	if sc := contextOf(schemas.Trace{Parent: parentOf("01"), State: "=,="}); !sc.IsValid() || sc.TraceState().Len() != 0 {
		t.Errorf("a bad tracestate must be left out alone, got %+v", sc)
	}
}

func TestTraceRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c trace.SpanContextConfig
		copy(c.TraceID[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "trace"))
		copy(c.SpanID[:], rapid.SliceOfN(rapid.Byte(), 8, 8).Draw(t, "span"))
		if rapid.Bool().Draw(t, "sampled") {
			c.TraceFlags = trace.FlagsSampled
		}
		c.Remote = true
		sc := trace.NewSpanContext(c)
		tr := traceOf(sc)
		if !sc.IsValid() {
			if tr != (schemas.Trace{}) {
				t.Fatalf("an invalid context became %q", tr.Parent)
			}
			return
		}
		if !contextOf(tr).Equal(sc) || sampled(tr.Parent) != sc.IsSampled() {
			t.Fatalf("%q came back as %+v", tr.Parent, contextOf(tr))
		}
	})
}

func FuzzContextOf(f *testing.F) {
	f.Add(parentOf("01"), "a=b")
	f.Add("00-", "")
	f.Fuzz(func(t *testing.T, parent, state string) {
		sc := contextOf(schemas.Trace{Parent: parent, State: state})
		if sc.IsValid() && sc.IsSampled() != sampled(parent) {
			t.Errorf("%q", parent)
		}
	})
}

func TestTemplateOf(t *testing.T) {
	for subject, want := range map[string]string{
		schemas.AgentSubject("t", "s", schemas.EventTurn):         "agent.{tenant}.{session}.turn",
		schemas.JobSubject(schemas.StagePrefill, "c0", "p0", "j"): "prefill.{cell}.{executor}.{job}",
		schemas.ReadySubject("c0", "default", "s", "t"):           "ready.{cell}.{tenant}.{session}.{turn}",
		"weir.tokenize.tiny": "weir.tokenize.{model}",
		"other.x":            "other", "": "",
	} {
		if got := templateOf(subject); got != want {
			t.Errorf("%q: %q, want %q", subject, got, want)
		}
	}
}
