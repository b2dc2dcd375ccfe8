package lineage

import (
	"encoding/json"
	"strings"

	infer "github.com/weir-dev/weir/kvtier/branch"
	"github.com/weir-dev/weir/schemas"
)

// miss says why the first block behind the known prefix must be computed, as far
// as the text decides it. Causes that lie before all messages have message -1;
// text that comes behind all that was known has the index of the first message
// there, which is the number of messages when only the generation prompt is left.
func (t *turn) miss(log *logbook, r *schemas.RenderReply) *schemas.Miss {
	m := &schemas.Miss{Cause: schemas.MissNewText, Message: -1, Known: log.Computed}
	base, old := t.branch.log, t.old
	if base == nil {
		if m.Cause = schemas.MissFirst; t.branch.turns > 0 {
			m.Detail = "the tokens of this branch were forgotten"
		}
		if log.Uncached {
			m.Cause = schemas.MissNotCached
		}
		return m
	}
	if !t.branch.fresh {
		m.Lost = max(0, base.Computed-log.Computed)
	}
	switch {
	case log.Uncached:
		m.Cause = schemas.MissNotCached
	case base.Keys.Model != log.Keys.Model || base.Keys.Vocab != log.Keys.Vocab || base.Keys.Adapter != log.Keys.Adapter:
		m.Cause = schemas.MissModel
	case base.Keys != log.Keys:
		m.Cause = schemas.MissTemplate
	case base.Tools != log.Tools && log.Computed < base.Computed:
		m.Cause = schemas.MissTools
	case len(t.entries) == 0 || len(old) == 0: // tokens or text
		if m.Lost > 0 {
			m.Cause = schemas.MissRewrite
		}
	case t.kept < len(old):
		t.missed(m)
	case log.Computed >= base.Computed:
		m.Message = t.kept
	default:
		t.reworded(m, base, r.Rewrite)
	}
	return m
}

// missed is a context that parts from the old one at a message.
func (t *turn) missed(m *schemas.Miss) {
	if m.Message = t.kept; t.kept == len(t.entries) {
		return // it was whole before: the end of it is computed again
	}
	is, was := t.entries[t.kept], t.old[t.kept]
	m.Byte = differsAt(contentOf(was.raw), contentOf(is.raw))
	switch {
	case t.branch.fresh:
	case is.item().Role == infer.System && was.item().Role == infer.System:
		m.Cause = schemas.MissSystem
	case t.branch.expect != "":
		m.Cause = t.branch.expect
	default:
		m.Cause = missOf(t.kind)
	}
}

func missOf(k infer.Kind) schemas.MissCause {
	switch k {
	case infer.Compaction:
		return schemas.MissCompaction
	case infer.Pruned:
		return schemas.MissPruned
	default:
		return schemas.MissRewrite
	}
}

// reworded is a context whose messages are as they were, and which the template
// writes otherwise: without the reasoning of an earlier answer, or not as the last
// answer was generated.
func (t *turn) reworded(m *schemas.Miss, base *logbook, how schemas.RewriteCause) {
	if t.at0 < 0 {
		m.Cause, m.Detail = schemas.MissTemplate, "the template writes what stands before the messages otherwise"
		return
	}
	m.Cause, m.Message = schemas.MissReworded, min(base.Marks[t.at0].Items, len(t.entries))
	if m.Message >= t.kept {
		m.Cause = schemas.MissNewText // nothing of what was known is lost but a part of a block
		return
	}
	for i := m.Message; i < t.kept; i++ {
		if t.entries[i].role == "assistant" {
			m.Message = i
			break
		}
	}
	if how == schemas.RewriteReasoning || how == "" && t.entries[m.Message].reasoning {
		m.Cause = schemas.MissReasoning
	}
	m.Detail = string(how)
}

// differsAt is the offset of the first byte that differs.
func differsAt(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// contentOf is the text of a message's content; parts stand one after the other,
// media as their JSON.
func contentOf(raw jsonRaw) string {
	var m struct {
		Content json.RawMessage `json:"content"`
	}
	if json.Unmarshal(raw, &m) != nil {
		return string(raw)
	}
	var s string
	if json.Unmarshal(m.Content, &s) == nil {
		return s
	}
	var parts []json.RawMessage
	if json.Unmarshal(m.Content, &parts) != nil {
		return string(m.Content)
	}
	texts := make([]string, 0, len(parts))
	for _, p := range parts {
		var part struct {
			Text *string `json:"text"`
		}
		if json.Unmarshal(p, &part) == nil && part.Text != nil {
			texts = append(texts, *part.Text)
		} else {
			texts = append(texts, string(p))
		}
	}
	return strings.Join(texts, "\n")
}
