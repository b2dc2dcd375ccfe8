package explaincmd

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// Bounds of what a terminal is shown.
const (
	barWidth    = 48
	maxBranches = 64
	maxName     = 24 // characters of a branch, tool or turn in a table
	maxDepth    = 8  // indentation
)

// page writes lines and keeps the first error.
type page struct {
	w   io.Writer
	err error
}

func (p *page) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

// printTurn writes a turn's waterfall and why its prompt was not found in full.
func printTurn(w io.Writer, r *TurnReport) error {
	p := &page{w: w}
	p.line("turn %s of session %s, tenant %s%s%s", r.Turn, r.Session, r.Tenant, named(", branch ", r.Branch), named(", model ", r.Model))
	switch {
	case r.Failure != nil:
		p.line("failed after %s with %s: %s", span(r.TotalMS), r.Failure.Code, clean(r.Failure.Message, 400))
	case r.Status == "ok":
		p.line("answered in %s%s, %s", span(r.TotalMS), named(", finish ", r.Finish), firstToken(r))
	}
	if r.Admitted != "" {
		p.line("admitted %s, attempt %d", r.Admitted, r.Attempt)
	}
	if len(r.Stages) > 0 {
		p.line("")
		waterfall(p, r)
	}
	if t := r.Tokens; t != nil {
		p.line("")
		p.line("prompt     %s tokens = %s found + %s computed again + %s new", comma(t.Prompt), comma(t.Cached), comma(t.Recomputed), comma(t.New))
		p.line("answer     %s tokens", comma(t.Generated))
		if t.Lost > 0 {
			p.line("lost       %s, computed before, stand elsewhere or nowhere in this prompt", many(t.Lost, "token", "tokens"))
		}
	}
	if m := r.Miss; m != nil {
		printMiss(p, m)
	}
	notes(p, r.Notes)
	return p.err
}

// firstToken says when the first token was there, as far as that is known.
func firstToken(r *TurnReport) string {
	switch {
	case r.Moved > 0:
		return fmt.Sprintf("first token soon after %s, handed over %s", span(r.TTFTMS), many(r.Moved, "time", "times"))
	case r.Attempt > 1:
		// An executor that died took along when it sent the first one.
		return fmt.Sprintf("first token of attempt %d after %s", r.Attempt, span(r.TTFTMS))
	default:
		return fmt.Sprintf("first token after %s, of which the engine computed %s", span(r.TTFTMS), span(r.EngineMS))
	}
}

func printMiss(p *page, m *Miss) {
	p.line("not found  from token %s on: %s", comma(m.Token), m.Words)
	detail := clean(m.Detail, 200)
	if detail == string(m.Cause) {
		detail = ""
	}
	p.line("cause      %s%s", m.Cause, named(": ", detail))
	if where := m.place(); where != "" {
		p.line("where      %s", where)
	}
	if m.Before != "" || m.After != "" {
		p.line("           before  %s", strconv.Quote(m.Before))
		p.line("           from    %s", strconv.Quote(m.After))
	}
	if m.Evicted != "" {
		p.line("evicted    %s by rule %s: %s", m.Evicted, m.Rule, m.RuleWords)
	} else if m.Rule != "" {
		p.line("evicted    rule %s: %s", m.Rule, m.RuleWords)
	}
}

// waterfall draws each stage as a bar, scaled to the turn's total.
func waterfall(p *page, r *TurnReport) {
	total := r.TotalMS
	name, on := 0, 0
	for _, s := range r.Stages {
		total = max(total, s.ToMS)
		name, on = max(name, len(s.Stage)), max(on, len(short(s.On)))
	}
	if total <= 0 {
		total = 1
	}
	for _, s := range r.Stages {
		from := min(barWidth-1, int(s.FromMS/total*barWidth))
		to := min(barWidth, max(from+1, int(s.ToMS/total*barWidth+0.5)))
		bar := strings.Repeat(" ", from) + strings.Repeat("#", to-from) + strings.Repeat(" ", barWidth-to)
		p.line("  %-*s  %-*s |%s| %10s", name, s.Stage, on, short(s.On), bar, span(s.ToMS-s.FromMS))
	}
}

// printSession writes a session's branches and its newest turns.
func printSession(w io.Writer, r *SessionReport) error {
	p := &page{w: w}
	p.line("session %s, tenant %s", r.Session, r.Tenant)
	if r.Known {
		p.line("%s, %s without a result", many(len(r.Branches)+r.Left, "branch", "branches"), many(r.Pending, "turn", "turns"))
	}
	if len(r.Branches) > 0 {
		p.line("")
		branches(p, r)
	}
	if len(r.Events) > 0 {
		p.line("")
		p.line("events     %s", events(r.Events))
	}
	if len(r.Turns) > 0 {
		p.line("")
		turnTable(p, r)
	}
	memory(p, r.Memory)
	if s := r.Sum; s.Prompt > 0 {
		p.line("")
		p.line("prompts    %s tokens = %s found (%.1f %%) + %s computed again + %s new", comma(s.Prompt), comma(s.Cached), 100*float64(s.Cached)/float64(s.Prompt), comma(s.Recomputed), comma(s.New))
		p.line("answers    %s tokens", comma(s.Generated))
	}
	if len(r.Causes) > 0 {
		p.line("misses     %s", counts(r.Causes))
	}
	notes(p, r.Notes)
	return p.err
}

func branches(p *page, r *SessionReport) {
	t := tabwriter.NewWriter(p.w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "BRANCH\tSTATE\tWHY\tTURNS\tMESSAGES\tTOKENS\tTOOL WAITS\tLAST TURN\tCHANGED")
	shown := r.Branches[:min(len(r.Branches), maxBranches)]
	for _, b := range shown {
		state, why := string(b.State), b.Why
		if b.Inferred {
			state += " (inferred)"
		}
		if b.Tool != "" {
			why = strings.TrimSpace(why + " " + short(b.Tool))
		}
		changed := ""
		if b.AtNS > 0 {
			changed = time.Unix(0, b.AtNS).UTC().Format(time.TimeOnly)
		}
		fmt.Fprintf(t, "%s%s\t%s\t%s\t%d\t%d\t%s\t%d\t%s\t%s\n", strings.Repeat("  ", min(b.Depth, maxDepth)), short(b.ID), state, clean(why, 40),
			b.Turns, b.Messages, comma(b.Tokens), b.ToolWaits, short(b.Tail), changed)
	}
	if err := t.Flush(); p.err == nil {
		p.err = err
	}
	if n := len(r.Branches) - len(shown) + r.Left; n > 0 {
		p.line("… and %d more", n)
	}
}

func turnTable(p *page, r *SessionReport) {
	if r.Earlier > 0 {
		p.line("%s not listed; see --limit", many(r.Earlier, "earlier turn is", "earlier turns are"))
	}
	t := tabwriter.NewWriter(p.w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TURN\tBRANCH\tSTATUS\tPROMPT\tFOUND\tSHARE\tANSWER\tTIME\tCAUSE OF THE FIRST MISS")
	for _, l := range r.Turns {
		share, cause := "-", string(l.Cause)
		if l.Prompt > 0 {
			share = fmt.Sprintf("%.1f %%", 100*float64(l.Cached)/float64(l.Prompt))
		}
		if l.Message != nil {
			cause += fmt.Sprintf(" in message %d", *l.Message)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", short(l.Turn), short(l.Branch), l.Status, comma(l.Prompt), comma(l.Cached), share,
			comma(l.Generated), span(l.TotalMS), cause)
	}
	if err := t.Flush(); p.err == nil {
		p.err = err
	}
}

func notes(p *page, ns []string) {
	for i, n := range ns {
		if i == 0 {
			p.line("")
		}
		p.line("note: %s", clean(n, 400))
	}
}

// events lists what was said and inferred; an inferred event is counted as
// "inferred.<kind>" too.
func events(m map[string]int) string {
	const inferred = "inferred."
	var b []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if strings.HasPrefix(k, inferred) {
			continue
		}
		s := fmt.Sprintf("%s %s", clean(k, 40), comma(m[k]))
		if n := m[inferred+k]; n > 0 {
			s += fmt.Sprintf(" (%s inferred)", comma(n))
		}
		b = append(b, s)
	}
	return strings.Join(b, ", ")
}

func counts(m map[string]int) string {
	var b []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		b = append(b, fmt.Sprintf("%s %s", clean(k, 40), comma(m[k])))
	}
	return strings.Join(b, ", ")
}

func named(before, v string) string {
	if v == "" {
		return ""
	}
	return before + v
}

// span writes milliseconds for people.
func span(ms float64) string {
	switch {
	case ms >= 10_000:
		return fmt.Sprintf("%.1f s", ms/1000)
	case ms >= 100:
		return fmt.Sprintf("%.0f ms", ms)
	default:
		return fmt.Sprintf("%.1f ms", ms)
	}
}

func many(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return comma(n) + " " + more
}

// comma groups digits by thousands.
func comma(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// short cuts an id to what a table has room for.
func short(s string) string { return clean(s, maxName) }

// clean makes text safe for a terminal and cuts it.
func clean(s string, most int) string {
	s = strings.Map(func(c rune) rune {
		if !strconv.IsPrint(c) {
			return ' '
		}
		return c
	}, s)
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}
