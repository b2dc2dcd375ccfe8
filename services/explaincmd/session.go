package explaincmd

import (
	"maps"
	"slices"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/tier"
)

// SessionReport explains a session; -o json prints it.
type SessionReport struct {
	Tenant  string `json:"tenant"`
	Session string `json:"session"`
	// Known is false when lineage has no such session, or does not answer.
	Known    bool           `json:"known"`
	Pending  int            `json:"pending,omitempty"` // turns without a result
	Branches []Branch       `json:"branches,omitempty"`
	Left     int            `json:"left,omitempty"` // branches that are not listed
	Events   map[string]int `json:"events,omitempty"`

	Turns   []TurnLine `json:"turns,omitempty"`
	Earlier int        `json:"earlier,omitempty"` // turns that are not listed
	Sum     Tokens     `json:"tokens"`            // of all stored results
	// Memory is what the tier nodes hold of the branches.
	Memory []*tier.BlocksReply `json:"memory,omitempty"`
	Causes map[string]int      `json:"causes,omitempty"` // turns by the cause of their first miss
	Notes  []string            `json:"notes,omitempty"`
}

// Branch is a branch with its place in the tree.
type Branch struct {
	Depth int `json:"depth"`
	schemas.BranchInfo
}

// TurnLine is one turn in the table.
type TurnLine struct {
	Turn      string            `json:"turn"`
	Branch    string            `json:"branch,omitempty"`
	Status    string            `json:"status"`
	Prompt    int               `json:"prompt"`
	Cached    int               `json:"cached"`
	Generated int               `json:"generated"`
	TotalMS   float64           `json:"total_ms"`
	Cause     schemas.MissCause `json:"cause,omitempty"`
	Message   *int              `json:"message,omitempty"`
}

// sessionReport explains a session from what is known, with its newest turns up to
// limit.
func sessionReport(f *facts, limit int) *SessionReport {
	rep := &SessionReport{Tenant: f.tenant, Session: f.session, Causes: map[string]int{}, Notes: f.notes}
	if l := f.lineage; l != nil {
		rep.Known, rep.Pending, rep.Left, rep.Events = l.Found, l.Pending, l.Left, l.Events
		rep.Branches = tree(l.Branches)
		if !l.Found {
			rep.Notes = append(rep.Notes, "lineage does not know this session: it had no turn, was deleted, or has been forgotten")
		}
	}
	lines := make([]TurnLine, 0, len(f.turns))
	listed := map[string]bool{}
	for _, h := range f.turns {
		listed[h.id] = true
		line := TurnLine{Turn: h.id, Status: "no result"}
		if h.turn != nil {
			line.Branch = h.turn.Weir.Branch
		}
		if r := f.results[h.id]; r != nil {
			line = rep.line(r)
		}
		lines = append(lines, line)
	}
	aged := 0
	for _, id := range slices.Sorted(maps.Keys(f.results)) {
		if !listed[id] { // AGENT has dropped the turn, RESULT keeps its answer
			rep.line(f.results[id])
			aged++
		}
	}
	rep.Earlier = max(0, len(lines)-limit) + aged
	rep.Turns = lines[max(0, len(lines)-limit):]
	return rep
}

// line adds a result to the sums.
func (rep *SessionReport) line(r *schemas.Result) TurnLine {
	line := TurnLine{
		Turn: r.Turn, Branch: r.Branch, Status: string(r.Status), Prompt: r.Usage.Prompt, Cached: r.Usage.Cached,
		Generated: r.Usage.Completion, TotalMS: milli(r.Timing.TotalNS),
	}
	if r.Failure != nil {
		line.Status = r.Failure.Code
	}
	t := tokensOf(r)
	rep.Sum.Prompt += t.Prompt
	rep.Sum.Cached += t.Cached
	rep.Sum.Recomputed += t.Recomputed
	rep.Sum.New += t.New
	rep.Sum.Generated += t.Generated
	rep.Sum.Lost += t.Lost
	if m := r.Miss; m != nil && m.Cause != "" {
		rep.Causes[string(m.Cause)]++
		line.Cause = m.Cause
		if m.Message >= 0 && textual(m.Cause) {
			n := m.Message
			line.Message = &n
		}
	}
	return line
}

// tree orders branches so that each stands below its parent. A parent that is not
// listed counts as none; a circle, which lineage never makes, is cut.
func tree(branches []schemas.BranchInfo) []Branch {
	known := map[string]bool{}
	for _, b := range branches {
		known[b.ID] = true
	}
	children := map[string][]schemas.BranchInfo{}
	for _, b := range branches {
		p := b.Parent
		if !known[p] || p == b.ID {
			p = ""
		}
		children[p] = append(children[p], b)
	}
	out := make([]Branch, 0, len(branches))
	done := map[string]bool{}
	type visit struct {
		b     schemas.BranchInfo
		depth int
	}
	push := func(stack []visit, bs []schemas.BranchInfo, depth int) []visit {
		for _, b := range slices.Backward(bs) {
			stack = append(stack, visit{b, depth})
		}
		return stack
	}
	for stack := push(nil, children[""], 0); len(stack) > 0; {
		top := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if done[top.b.ID] {
			continue
		}
		done[top.b.ID] = true
		out = append(out, Branch{Depth: top.depth, BranchInfo: top.b})
		stack = push(stack, children[top.b.ID], top.depth+1)
	}
	for _, b := range branches {
		if !done[b.ID] {
			out = append(out, Branch{BranchInfo: b})
		}
	}
	return out
}
