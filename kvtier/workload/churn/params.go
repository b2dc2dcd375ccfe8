package churn

import (
	"errors"
	"fmt"

	"github.com/weir-dev/weir/kvtier/workload"
)

// Tool is a class of tools.
type Tool struct {
	Name  string
	Share float64 // of the calls of tools, relative to the other tools
	Wait  Dist    // seconds
	// Sure is the share of its calls for which the agent says how long they take.
	Sure float64
}

// Params says how agents behave. Lengths are tokens, times seconds, Per… are
// probabilities. In Default's comments "kvtier" and "traces" are the collected facts of
// those names with their sections, "weka" is traces/params_coding_weka.json, TraceLab
// is traces 4.4; "chosen" has no source.
type Params struct {
	Agents   int     // agents at work at the same time
	Horizon  float64 // no call begins later
	MaxCalls int     // the first so many calls are kept
	Ramp     float64 // the agents begin within it
	Gap      Dist    // from the end of an agent's session to its next one

	Tenants     int     // agents belong to tenants with weights 1/k^TenantZipf
	TenantZipf  float64 //
	Systems     int     // system prompts that sessions of all tenants share
	SystemMean  float64 // prompt number = min(Systems-1, exponential of this mean)
	System      Dist    // length of system prompt and tool definitions
	Resumed     Dist    // context that a session begins with, behind the system prompt
	Calls       Dist    // calls of a session's main line
	CallsInTurn Dist    // calls until the user is next
	ToolStep    Dist    // tokens that a tool's output adds
	UserStep    Dist    // tokens that the user adds
	Output      Dist    // tokens of an answer
	Answer      Dist    // seconds until it is there
	UserWait    Dist

	Reasoning     float64 // share of the sessions whose answers hold reasoning
	ReasoningMean float64 // mean share of it in the answer; uniform in [0, 2·mean]

	Window      Dist    // length above which a context is replaced by a summary
	SmallShare  float64 // share of sessions with SmallWindow
	SmallWindow Dist
	After       Dist // length after it, system prompt included
	Summary     Dist // tokens of the summary's call
	SummaryTime Dist // seconds that it takes
	Restart     Dist // seconds from the summary to the next call

	Tools       []Tool
	Stuck       float64 // share of tool calls that hang, for StuckBase + exponential(StuckMean) seconds
	StuckBase   float64
	StuckMean   float64
	ExpectSigma float64 // what an agent expects is its wait times lognormal(1, ExpectSigma)

	PerStepSubs float64 // sub-agents start at a tool step
	SubTypes    []float64
	SubSystem   Dist // length of a type's system prompt, which all its sub-agents share
	SubTask     Dist // the only part of the first prompt that siblings do not share
	SubFanOut   Dist
	SubCalls    Dist
	SubStep     Dist // tokens that a step adds
	SubOutput   Dist
	SubWait     Dist
	SubAsync    float64 // share of fan-outs for which the parent does not wait

	PerTurnFork float64 // the context is forked where the user is next
	ForkCalls   Dist
	ForkEnds    float64 // share of forks whose end is said

	PerCallRetry float64 // the call is aborted and asked again
	Backoff      Dist

	PerTurnRewrite float64 // all behind the system prompt is written anew at the same length
	PerStepRewrite float64

	EndSaid float64 // share of sessions whose end is said

	Screens        float64 // share of the sessions that use a computer
	ScreenSystem   Dist
	ScreenSteps    Dist
	Screenshot     int
	Placeholder    int // what stands for a removed screenshot
	ScreenOutput   Dist
	ScreenWait     Dist
	ScreenWindow   Dist
	ScreenPolicies []ScreenPolicy

	OneShots      float64 // per second: single calls of a background tenant, without events
	OneShotPrompt Dist
}

// ScreenPolicy removes the oldest Every screenshots as soon as Keep+Every are there.
type ScreenPolicy struct{ Keep, Every int }

// Default is churn at the scale of the recorded sessions: 64 agents for an hour.
func Default() Params {
	return Params{
		Agents: 64, Horizon: 3600, MaxCalls: 20_000, Ramp: 60, // kvtier 5.6
		Gap: Dist{20, 1, 1, 600}, // kvtier 5.6

		Tenants: 4, TenantZipf: 0.6, // traces 6.2, aiperf's groups
		Systems: 8, SystemMean: 2, // kvtier 5.6
		System:   Dist{14_300, 0.2, 4_210, 23_081},  // weka system_plus_tools_tokens
		Resumed:  Dist{9_500, 2.2, 200, 150_000},    // weka start_context_tokens less system prompt, up to 200 k
		Calls:    Dist{45, 0.96, 3, 514},            // weka llm_calls_per_conversation
		ToolStep: Dist{709, 1.3, 65, 58_707},        // weka new_tokens_tool_step
		UserStep: Dist{586, 1.32, 18, 53_580},       // weka new_tokens_user_step
		Output:   Dist{216, 1.17, 1, 18_195},        // weka output_tokens
		Answer:   Dist{6.13, 0.95, 1.23, 300},       // weka api_time_s
		UserWait: Dist{86, 2.09, 0.5, 600},          // TraceLab human wait p50, p90; cut at 10 min, chosen
		Window:   Dist{150_800, 0.1, 110_000, 2e5},  // weka compaction.tokens_before, p20 and above
		After:    Dist{33_700, 0.6, 14_000, 90_000}, // weka compaction.tokens_after

		CallsInTurn: Dist{1.2, 1.75, 1, 374}, // weka llm_calls_per_user_turn

		Reasoning: 0.5, ReasoningMean: 0.4, // chosen; kvtier 5.4: thinking is about 40 % of what is generated

		// weka compaction.tokens_before below p20; its author removed frequent compactors
		// (traces 4.3). The share is chosen: sessions that are compacted at all are so about
		// three times, between Claude's 2.4 and Codex's 4.2 (TraceLab).
		SmallShare: 0.5, SmallWindow: Dist{70_000, 0.2, 40_000, 110_000},
		Summary:     Dist{3_000, 0.5, 500, 12_000}, // chosen
		SummaryTime: Dist{90, 0.5, 20, 300},        // with Restart: weka compaction.gap_s, 179 s p50
		Restart:     Dist{60, 1, 1, 900},           //

		Tools: tools(),
		// kvtier 5.6, with a quarter of its share: TraceLab's p99 leaves no room for 2 %.
		Stuck: 0.005, StuckBase: 300, StuckMean: 600,
		ExpectSigma: 0.7, // chosen

		// Between weka (2.4 % of sessions) and kvtier 5.6 (6 % of turns); 44 % of sessions
		// have some by kvtier 5.4.
		PerStepSubs: 0.02,
		SubTypes:    []float64{55, 6, 2},                  // traces 4.3: Explore, general-purpose, Plan
		SubSystem:   Dist{10_100, 0.1, 8_600, 18_000},     // weka subagents.first_input less task
		SubTask:     Dist{210, 0.6, 30, 3_000},            // siblings share about 98 % of the first prompt
		SubFanOut:   Dist{2, 0.6, 1, 8},                   // weka subagents.per_conversation, kvtier 5.6: 1-4
		SubCalls:    Dist{10, 0.55, 2, 24},                // weka subagents.calls
		SubStep:     Dist{3_600, 0.9, 100, 30_000},        // from first_input to last_input
		SubOutput:   Dist{235, 0.9, 62, 9_829},            // weka subagents.output_per_call
		SubWait:     Dist{2, 0.8, 0.05, 60},               // kvtier 5.6
		SubAsync:    0.06,                                 // traces 4.3: 4 of 63 async_launched
		PerTurnFork: 0.03, ForkCalls: Dist{6, 0.7, 1, 40}, // chosen
		ForkEnds:     0.8,                                // chosen
		PerCallRetry: 0.01, Backoff: Dist{1, 1, 0.1, 30}, // chosen

		// traces 4.3: 442 rewrites in 48,561 transitions, half of them behind end_turn.
		PerTurnRewrite: 0.036, PerStepRewrite: 0.005,

		EndSaid: 0.9, // chosen

		Screens:      0.12,                         // chosen
		ScreenSystem: Dist{6_000, 0, 6_000, 6_000}, // traces 6.3, base
		ScreenSteps:  Dist{28, 0.8, 3, 201},        // params_math_cua steps_per_task: mean 38.2
		Screenshot:   1_500, Placeholder: 12,       // traces 6.3
		ScreenOutput:   Dist{300, 0.8, 5, 32_800},                       // params_math_cua output_tokens_per_step
		ScreenWait:     Dist{1.5, 1, 0.02, 150},                         // params_math_cua wait_before_step_ms
		ScreenWindow:   Dist{50_000, 0, 50_000, 5e4},                    // traces 6.3: compaction above 50 k
		ScreenPolicies: []ScreenPolicy{{1, 1}, {3, 3}, {8, 1}, {3, 40}}, // params_math_cua context_management

		OneShots: 0.5, OneShotPrompt: Dist{8_000, 0.6, 2_048, 22_016}, // kvtier 5.6
	}
}

// tools are the default classes. TraceLab: shell 76 %, edit 11 %, read and search 9 %; all tool calls p50 0.3 s,
// p90 13.6 s, p99 216 s, over a minute 4 %. These give 0.37, 13.4, 235 and 3.5 %.
// Splitting the shell by what runs in it, and Sure, are chosen.
func tools() []Tool {
	return []Tool{
		{"read", 9, Dist{0.036, 1.2, 0.001, 60}, 0},
		{"edit", 11, Dist{0.095, 1.2, 0.001, 60}, 0},
		{"shell", 62, Dist{0.35, 2, 0.005, 600}, 0.3},
		{"test", 10, Dist{12, 1.3, 0.1, 900}, 0.6},
		{"web", 5, Dist{3, 1, 0.1, 120}, 0.3},
		{"build", 2.5, Dist{90, 1.1, 2, 1800}, 0.8},
		{"approve", 0.5, Dist{400, 0.8, 10, 3600}, 0},
	}
}

// Check reports every parameter that makes no schedule.
func (p *Params) Check() error {
	var errs []error
	fail := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("churn: "+format, args...))
		}
	}
	fail(p.Agents >= 0 && p.Agents <= 10_000, "Agents is %d, at most 10000", p.Agents)
	fail(p.Horizon >= 0 && p.Horizon <= 1e6 && p.Ramp >= 0 && p.Ramp <= 1e6, "Horizon is %g s and Ramp %g s, at most 1e6", p.Horizon, p.Ramp)
	fail(p.MaxCalls >= 0 && p.MaxCalls <= 1<<22, "MaxCalls is %d, at most %d", p.MaxCalls, 1<<22)
	fail(p.Tenants >= 1 && p.Tenants <= 1000 && p.TenantZipf >= 0 && p.TenantZipf <= 10, "Tenants is %d and TenantZipf %g; 1 to 1000, 0 to 10", p.Tenants, p.TenantZipf)
	fail(p.Systems >= 1 && p.Systems <= maxSystems && p.SystemMean >= 0 && p.SystemMean <= 1e6, "Systems is %d and SystemMean %g; 1 to %d, 0 to 1e6", p.Systems, p.SystemMean, maxSystems)
	fail(p.OneShots >= 0 && p.OneShots <= 1000, "OneShots is %g per second, at most 1000", p.OneShots)
	fail(p.StuckBase >= 0 && p.StuckBase <= 1e5 && p.StuckMean >= 0 && p.StuckMean <= 1e5, "StuckBase is %g s and StuckMean %g s, at most 1e5", p.StuckBase, p.StuckMean)
	fail(p.ExpectSigma >= 0 && p.ExpectSigma <= 10, "ExpectSigma is %g, at most 10", p.ExpectSigma)
	fail(p.Screenshot >= 0 && p.Placeholder >= 0 && p.Placeholder <= p.Screenshot && p.Screenshot <= 1<<16, "Screenshot is %d tokens and Placeholder %d; 0 <= Placeholder <= Screenshot <= 65536", p.Screenshot, p.Placeholder)
	fail(p.Screens == 0 || len(p.ScreenPolicies) > 0, "there are Screens but no ScreenPolicies")
	fail(p.PerStepSubs == 0 || len(p.SubTypes) > 0 && len(p.SubTypes) <= maxSystems, "there are %d SubTypes, want 1 to %d", len(p.SubTypes), maxSystems)
	fail(len(p.Tools) > 0, "there are no Tools")
	for _, s := range p.ScreenPolicies {
		fail(s.Keep >= 0 && s.Every >= 1 && s.Keep+s.Every <= 1000, "a ScreenPolicy keeps %d and removes %d", s.Keep, s.Every)
	}
	for _, w := range p.SubTypes {
		fail(w > 0 && w <= 1e6, "a SubType has the weight %g", w)
	}
	for _, t := range p.Tools {
		fail(t.Share > 0 && t.Share <= 1e6 && t.Sure >= 0 && t.Sure <= 1, "tool %s has Share %g and Sure %g", t.Name, t.Share, t.Sure)
		errs = append(errs, t.Wait.check("tool "+t.Name, maxSeconds))
	}
	for _, x := range p.shares() {
		fail(x.v >= 0 && x.v <= x.max, "%s is %g, not a share", x.name, x.v)
	}
	fail(p.PerStepRewrite+p.PerStepSubs <= 1 && p.PerTurnRewrite+p.PerTurnFork <= 1, "what may happen at a step adds up to more than 1")
	for _, x := range p.dists() {
		errs = append(errs, x.v.check(x.name, x.max))
	}
	most := p.Calls.Max * (1 + p.SubFanOut.Max)
	fail(most <= workload.MaxLines, "a session may have %g lines of context, at most %d: Calls.Max (1 + SubFanOut.Max)", most, workload.MaxLines)
	most = p.Calls.Max * (2 + p.SubFanOut.Max*p.SubCalls.Max + p.ForkCalls.Max)
	fail(most <= maxGenerated, "a session may have %g calls, at most %d: Calls.Max (2 + SubFanOut.Max SubCalls.Max + ForkCalls.Max)", most, maxGenerated)
	return errors.Join(errs...)
}
