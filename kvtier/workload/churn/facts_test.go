package churn

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// TestDefaultsFitTheFacts compares the default distributions with the quantiles that
// were measured in recorded sessions.
func TestDefaultsFitTheFacts(t *testing.T) {
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	var b []byte
	for b == nil {
		if b, err = os.ReadFile(filepath.Join(dir, "shared", "traces", "params_coding_weka.json")); err != nil && dir == filepath.Dir(dir) {
			t.Skip("there is no folder shared/traces beside the checkout")
		}
		dir = filepath.Dir(dir)
	}
	type table struct {
		Q []float64 `json:"q"`
	}
	var facts struct {
		Percentiles []float64 `json:"percentiles"`
		System      table     `json:"system_plus_tools_tokens"`
		Calls       table     `json:"llm_calls_per_conversation"`
		InTurn      table     `json:"llm_calls_per_user_turn"`
		ToolStep    table     `json:"new_tokens_tool_step"`
		UserStep    table     `json:"new_tokens_user_step"`
		Output      table     `json:"output_tokens"`
		Answer      table     `json:"api_time_s"`
		Compaction  struct {
			After table `json:"tokens_after"`
		} `json:"compaction"`
		Sub struct {
			Calls  table `json:"calls"`
			First  table `json:"first_input"`
			Output table `json:"output_per_call"`
		} `json:"subagents"`
	}
	if err := json.Unmarshal(b, &facts); err != nil {
		t.Fatal(err)
	}
	p := Default()
	at := func(q table, percent float64) float64 {
		for i, x := range facts.Percentiles {
			if x == percent {
				return q.Q[i]
			}
		}
		t.Fatalf("the facts have no percentile %g", percent)
		return 0
	}
	for _, x := range []struct {
		name  string
		d     Dist
		q     table
		tails float64 // factor allowed at p90 and p99
	}{
		{"System", p.System, facts.System, 1.25},
		{"Calls", p.Calls, facts.Calls, 1.35},
		{"CallsInTurn", p.CallsInTurn, facts.InTurn, 1.2},
		{"ToolStep", p.ToolStep, facts.ToolStep, 1.15},
		{"UserStep", p.UserStep, facts.UserStep, 1.15},
		{"Output", p.Output, facts.Output, 1.15},
		{"Answer", p.Answer, facts.Answer, 1.2},
		{"After", p.After, facts.Compaction.After, 1.5},
		{"SubCalls", p.SubCalls, facts.Sub.Calls, 1.3},
		{"SubOutput", p.SubOutput, facts.Sub.Output, 3},
	} {
		for percent, factor := range map[float64]float64{50: 1.25, 90: x.tails, 99: x.tails} {
			got, want := x.d.Quantile(percent/100), at(x.q, percent)
			if got < want/factor || got > want*factor {
				t.Errorf("%s p%g: %.4g, measured %.4g", x.name, percent, got, want)
			}
		}
	}
	first := p.SubSystem.Median + p.SubTask.Median
	if want := at(facts.Sub.First, 50); first < want/1.1 || first > want*1.1 {
		t.Errorf("the first prompt of sub-agents: %g, measured %g", first, want)
	}
	if shared := p.SubSystem.Median / first; shared < 0.97 || shared > 0.99 {
		t.Errorf("siblings share %.3f of it, measured 0.98", shared)
	}
}
