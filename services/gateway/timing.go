package gateway

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/weir-dev/weir/schemas"
)

// headerTiming is a W3C header (https://www.w3.org/TR/server-timing/): metrics
// with a duration in milliseconds or a description. A stream has it as a trailer.
const headerTiming = "Server-Timing"

// serverTiming says where a turn's time and cache misses came from:
//
//	queue;dur=1.2, prefill;dur=80, decode;dur=310.5, total;dur=395, cached;desc="1984 of 2000", miss;desc="new_text message 4 byte 0"
//
// A stage that happened more than once, such as a decode that was handed over, is
// one metric with the sum.
func serverTiming(r *schemas.Result) string {
	var b strings.Builder
	dur := func(name string, ns int64) {
		if ns <= 0 {
			return
		}
		sep(&b)
		b.WriteString(name + ";dur=" + strconv.FormatFloat(float64(ns/1000)/1000, 'f', -1, 64))
	}
	t := &r.Timing
	var sums [len(stages)]int64
	for _, s := range t.Spans {
		for i, stage := range stages {
			if s.Stage == stage {
				sums[i] += s.To - s.From
			}
		}
	}
	for i, stage := range stages {
		dur(stage, sums[i])
	}
	if len(t.Spans) == 0 {
		dur(schemas.SpanPrefill, t.PrefillNS)
		dur(schemas.SpanDecode, t.DecodeNS)
	}
	dur("total", t.TotalNS)
	if r.Usage.Prompt > 0 {
		sep(&b)
		fmt.Fprintf(&b, `cached;desc="%d of %d"`, r.Usage.Cached, r.Usage.Prompt)
	}
	if r.Miss != nil && r.Miss.Cause != "" {
		sep(&b)
		b.WriteString(`miss;desc="` + missText(r.Miss) + `"`)
	}
	return b.String()
}

// stages in the order in which they happen.
var stages = [...]string{
	schemas.SpanRender, schemas.SpanQueue, schemas.SpanPrefillWait, schemas.SpanPrefill, schemas.SpanDecodeWait,
	schemas.SpanRebuild, schemas.SpanDecode,
}

func sep(b *strings.Builder) {
	if b.Len() > 0 {
		b.WriteString(", ")
	}
}

// missText is cause and place of the first block that was missed, and by which
// rule it had gone, as a quoted string may hold them.
func missText(m *schemas.Miss) string {
	s := string(m.Cause)
	if m.Message >= 0 {
		s += fmt.Sprintf(" message %d byte %d", m.Message, m.Byte)
	}
	if m.Rule != "" {
		s += " by " + m.Rule
	}
	return strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' || c == '"' || c == '\\' {
			return '_'
		}
		return c
	}, s)
}
