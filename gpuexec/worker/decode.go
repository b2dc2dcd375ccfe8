package worker

import (
	"encoding/json"
	"fmt"

	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/gpuexec/sampling"
	"github.com/weir-dev/weir/schemas"
)

// prefill computes whole blocks of prompts, one engine step for each block, so that
// their bytes do not depend on where an earlier run stopped. Of several prompts each
// gets a block in turn.
func (w *Worker) prefill(op *schemas.PrefillOp) (*schemas.PrefillDone, error) {
	seqs := make([]*seq, len(op.Seqs))
	done := &schemas.PrefillDone{Rows: make([]schemas.PrefillRow, len(op.Seqs))}
	for i, id := range op.Seqs {
		s, err := w.get(id)
		if err != nil {
			return nil, err
		}
		seqs[i] = s
		done.Rows[i].Missing = w.missing(s, id)
	}
	start := w.cfg.Now()
	for n := 0; n == 0 || n < op.MaxBlocks && w.cfg.Now()-start < op.MaxNS; n++ {
		more := false
		for i, s := range seqs {
			row := &done.Rows[i]
			if row.Missing == 0 || row.Err != "" {
				continue
			}
			id := w.at[op.Seqs[i]]
			at := w.cfg.Engine.Len(id)
			if err := w.step(s, id, at, (at/blockTokens+1)*blockTokens, false); err != nil {
				row.Err, row.Code = err.Error(), codeOf(err)
				continue
			}
			row.Computed += blockTokens
			row.Missing = w.missing(s, op.Seqs[i])
			more = more || row.Missing > 0
		}
		if !more {
			break
		}
	}
	return done, nil
}

// missing is the number of whole prompt blocks that the engine does not hold yet.
func (w *Worker) missing(s *seq, id int32) int {
	return max(0, s.promptBlocks()-w.cfg.Engine.Len(w.at[id])/blockTokens)
}

// step computes tokens at..to-1 of one sequence as a prefill step.
func (w *Worker) step(s *seq, id gpuexec.SeqID, at, to int, logits bool) error {
	if at < s.known {
		return fmt.Errorf("%w: token %d is not in the job", errOp, at)
	}
	w.rows = w.rows[:0]
	for p := at; p < to; p++ {
		w.rows = append(w.rows, gpuexec.Row{Seq: id, Token: s.tokens[p], Pos: int32(p), Logits: logits && p == to-1})
	}
	return w.compute(gpuexec.PhasePrefill, w.rows)
}

// decode advances sequences token by token until a bound of op is met.
func (w *Worker) decode(op *schemas.DecodeOp) (*schemas.DecodeDone, error) {
	done := &schemas.DecodeDone{Rows: make([]schemas.DecodeRow, len(op.Seqs))}
	seqs := make([]*seq, len(op.Seqs))
	for i, id := range op.Seqs {
		s, err := w.get(id)
		if err != nil {
			return nil, err
		}
		seqs[i] = s
		done.Rows[i].First = max(len(s.tokens)-s.n, s.delivered)
		done.Rows[i].TextAt = len(s.all)
	}
	start := w.cfg.Now()
	ended := w.startRows(op, seqs, done)
	for !ended && done.Steps < op.MaxSteps && (done.Steps == 0 || w.cfg.Now()-start < op.MaxNS) {
		n, over := w.stepRows(op, seqs, done)
		ended = over
		if n == 0 {
			break
		}
		done.Steps++
	}
	for i, s := range seqs {
		done.Rows[i].All = s.tokens[s.n:]
	}
	return done, nil
}

// startRows computes the prompt's tail of rows that have not started and samples
// their first token. It reports whether a row ended.
func (w *Worker) startRows(op *schemas.DecodeOp, seqs []*seq, done *schemas.DecodeDone) (ended bool) {
	for i, s := range seqs {
		if s.started {
			// The imported blocks may hold all delivered tokens, the last one included.
			ended = s.ended(&done.Rows[i]) || ended
			continue
		}
		id := w.at[op.Seqs[i]]
		at := w.cfg.Engine.Len(id)
		if at != s.promptBlocks()*blockTokens {
			fail(&done.Rows[i], fmt.Errorf("%w: decode before the prompt is complete: %d of %d tokens", errOp, at, s.n))
			ended = true
			continue
		}
		if err := w.step(s, id, at, s.n, true); err != nil {
			fail(&done.Rows[i], err)
			ended = true
			continue
		}
		s.started = true
		ended = w.choose(s, w.cfg.Engine.Logits(s.n-at-1), &done.Rows[i]) || ended
	}
	return ended
}

// stepRows advances every running row by one token, in as many engine steps as
// the engine's batch size needs. n is the number of rows that advanced.
func (w *Worker) stepRows(op *schemas.DecodeOp, seqs []*seq, done *schemas.DecodeDone) (n int, ended bool) {
	w.rows = w.rows[:0]
	rowOf := make([]int, 0, len(seqs))
	flush := func() {
		if len(w.rows) == 0 {
			return
		}
		err := w.compute(gpuexec.PhaseDecode, w.rows)
		for k, i := range rowOf {
			if err != nil {
				fail(&done.Rows[i], err)
				ended = true
				continue
			}
			n++
			ended = w.choose(seqs[i], w.cfg.Engine.Logits(k), &done.Rows[i]) || ended
		}
		w.rows, rowOf = w.rows[:0], rowOf[:0]
	}
	for i, s := range seqs {
		if !s.started || s.finish != "" || done.Rows[i].Err != "" {
			continue
		}
		pos := len(s.tokens) - 1
		w.rows = append(w.rows, gpuexec.Row{Seq: w.at[op.Seqs[i]], Token: s.tokens[pos], Pos: int32(pos), Logits: true})
		rowOf = append(rowOf, i)
		if len(w.rows) == w.limits.BatchRows {
			flush()
		}
	}
	flush()
	return n, ended
}

func fail(row *schemas.DecodeRow, err error) { row.Err, row.Code = err.Error(), codeOf(err) }

// ended tells in row how the sequence ended, if it did.
func (s *seq) ended(row *schemas.DecodeRow) bool {
	if s.finish == "" {
		return false
	}
	row.Finish, row.Answer, row.End = s.finish, string(s.all), s.end
	s.message(row)
	return true
}

// choose picks the next token of a row from its logits and takes it. It reports
// whether the row ended.
func (w *Worker) choose(s *seq, logits []float32, row *schemas.DecodeRow) bool {
	index := len(s.tokens) - s.n
	token, err := w.pick(s, index, logits)
	if err != nil {
		fail(row, err)
		return true
	}
	if s.ready.Sampling.Logprobs > 0 { // of delivered tokens too: the result lists all
		row.Logprobs = append(row.Logprobs, w.logprob(s, logits, token))
	}
	if index >= s.delivered {
		row.Tokens = append(row.Tokens, token)
	}
	text := w.append(s, token)
	if index >= s.delivered {
		row.Text += text
	} else {
		row.TextAt = len(s.all)
	}
	return s.ended(row)
}

// pick is the forced token of this index, or a sampled one.
func (w *Worker) pick(s *seq, index int, logits []float32) (int32, error) {
	if index < len(s.forced) {
		return s.forced[index], nil
	}
	if s.grammar != nil {
		s.grammar.Mask(logits)
	}
	return s.sampler.Next(index, logits)
}

// append takes a token as generated: sampler, grammar, text and the end
// condition follow it. It returns text that became certain.
func (w *Worker) append(s *seq, token int32) string {
	s.tokens = append(s.tokens, token)
	gen := len(s.tokens) - s.n
	s.sampler.Accept(token)
	if s.grammar != nil && !w.cfg.Vocab.EOG(token) {
		if err := s.grammar.Accept(token); err != nil && gen > len(s.forced) {
			s.finish = "stop"
		}
	}
	eog := w.cfg.Vocab.EOG(token) && !s.ready.IgnoreEOS
	if gen <= len(s.ready.Force) {
		eog = false // a replay decides by itself where it ends
	}
	var out string
	if !eog {
		out = s.text.Add(w.cfg.Vocab.Piece(token, s.reader.shown[token]))
	}
	if eog {
		s.end = string(w.cfg.Vocab.Piece(token, true))
	}
	stop, _ := s.text.Stopped()
	switch {
	case stop != "", eog:
		s.finish = "stop"
	case gen >= s.ready.MaxNew, len(s.tokens) >= w.limits.Context:
		s.finish = "length"
	case len(s.ready.Force) > 0 && gen >= len(s.ready.Force):
		s.finish = "stop"
	}
	if s.finish != "" {
		out += s.text.Flush()
	}
	s.all = append(s.all, out...)
	return out
}

// logprob is OpenAI's logprob object of one token.
func (w *Worker) logprob(s *seq, logits []float32, token int32) []byte {
	type entry struct {
		Token   string  `json:"token"`
		Logprob float64 `json:"logprob"`
		Bytes   []int   `json:"bytes"`
	}
	type object struct {
		entry
		Top []entry `json:"top_logprobs"`
	}
	make1 := func(id int32, lp float64) entry {
		p := w.cfg.Vocab.Piece(id, true)
		e := entry{Token: string(p), Logprob: lp, Bytes: make([]int, len(p))}
		for i, b := range p {
			e.Bytes[i] = int(b)
		}
		return e
	}
	lp, top, err := sampling.Logprobs(logits, token, s.ready.Sampling.Logprobs-1, nil)
	if err != nil {
		return []byte("null")
	}
	o := object{entry: make1(token, lp), Top: []entry{}}
	for _, t := range top {
		o.Top = append(o.Top, make1(t.Token, t.Logprob))
	}
	b, err := json.Marshal(o)
	if err != nil {
		return []byte("null")
	}
	return b
}
