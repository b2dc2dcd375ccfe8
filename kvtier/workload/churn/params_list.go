package churn

// named is a parameter with its name, for errors, and how large it may be.
type named[T any] struct {
	name string
	v    T
	max  float64
}

// Bounds of single draws. They keep a session's times and ids in range.
const (
	maxSeconds = 1e6
	maxCount   = 10_000
)

// shares are the parameters between 0 and 1.
func (p *Params) shares() []named[float64] {
	return []named[float64]{
		{"Reasoning", p.Reasoning, 1},
		{"ReasoningMean", p.ReasoningMean, 1},
		{"SmallShare", p.SmallShare, 1},
		{"Stuck", p.Stuck, 1},
		{"PerStepSubs", p.PerStepSubs, 1},
		{"SubAsync", p.SubAsync, 1},
		{"PerTurnFork", p.PerTurnFork, 1},
		{"ForkEnds", p.ForkEnds, 1},
		{"PerCallRetry", p.PerCallRetry, 1},
		{"PerTurnRewrite", p.PerTurnRewrite, 1},
		{"PerStepRewrite", p.PerStepRewrite, 1},
		{"EndSaid", p.EndSaid, 1},
		{"Screens", p.Screens, 1},
	}
}

// dists are all distributions except the tools'.
func (p *Params) dists() []named[Dist] {
	return []named[Dist]{
		{"Calls", p.Calls, maxCount},
		{"CallsInTurn", p.CallsInTurn, maxCount},
		{"SubFanOut", p.SubFanOut, maxCount},
		{"SubCalls", p.SubCalls, maxCount},
		{"ForkCalls", p.ForkCalls, maxCount},
		{"ScreenSteps", p.ScreenSteps, maxCount},

		{"Gap", p.Gap, maxSeconds},
		{"Answer", p.Answer, maxSeconds},
		{"UserWait", p.UserWait, maxSeconds},
		{"SummaryTime", p.SummaryTime, maxSeconds},
		{"Restart", p.Restart, maxSeconds},
		{"SubWait", p.SubWait, maxSeconds},
		{"Backoff", p.Backoff, maxSeconds},
		{"ScreenWait", p.ScreenWait, maxSeconds},

		{"System", p.System, maxPrompt},
		{"Resumed", p.Resumed, maxPrompt},
		{"ToolStep", p.ToolStep, maxPrompt},
		{"UserStep", p.UserStep, maxPrompt},
		{"Output", p.Output, maxPrompt},
		{"Window", p.Window, maxPrompt},
		{"SmallWindow", p.SmallWindow, maxPrompt},
		{"After", p.After, maxPrompt},
		{"Summary", p.Summary, maxPrompt},
		{"SubSystem", p.SubSystem, maxPrompt},
		{"SubTask", p.SubTask, maxPrompt},
		{"SubStep", p.SubStep, maxPrompt},
		{"SubOutput", p.SubOutput, maxPrompt},
		{"ScreenSystem", p.ScreenSystem, maxPrompt},
		{"ScreenOutput", p.ScreenOutput, maxPrompt},
		{"ScreenWindow", p.ScreenWindow, maxPrompt},
		{"OneShotPrompt", p.OneShotPrompt, maxPrompt},
	}
}
