package schemas

// AddSpan returns spans with one more. It never changes spans, which may stand in a
// message that was sent; beyond MaxSpans the oldest ones are dropped.
func AddSpan(spans []StageSpan, s StageSpan) []StageSpan {
	from := max(0, len(spans)+1-MaxSpans)
	out := make([]StageSpan, 0, len(spans)+1-from)
	return append(append(out, spans[from:]...), s)
}
