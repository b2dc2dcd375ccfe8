package worker

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"

	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/gpuexec/chat"
	"github.com/weir-dev/weir/gpuexec/sampling"
	"github.com/weir-dev/weir/schemas"
)

// open gives a turn a sequence and imports what the tier holds of it.
func (w *Worker) open(op *schemas.OpenOp) (*schemas.OpenDone, error) {
	r := op.Ready
	if op.Seq < 0 || int(op.Seq) >= len(w.seqs) || w.seqs[op.Seq] != nil {
		return nil, fmt.Errorf("%w: sequence %d is not free", errOp, op.Seq)
	}
	if r.Prompt.N+1 > w.limits.Context {
		return nil, fmt.Errorf("%w: the prompt has %d tokens, a sequence holds %d", gpuexec.ErrUnsupported, r.Prompt.N, w.limits.Context)
	}
	s := &seq{ready: r, n: r.Prompt.N, known: r.Prompt.TailFrom, text: chat.NewText(r.Stop), uncached: uncached(&r.Prompt)}
	if !op.Again {
		s.delivered = len(op.Delivered)
	}
	s.tokens = make([]int32, s.n, s.n+min(r.MaxNew, 4096)+1)
	copy(s.tokens[r.Prompt.TailFrom:], r.Prompt.Tail)
	if len(op.Head) > 0 {
		if len(op.Head) < r.Prompt.TailFrom {
			return nil, fmt.Errorf("%w: %d head tokens, the tail starts at %d", errOp, len(op.Head), r.Prompt.TailFrom)
		}
		copy(s.tokens, op.Head[:r.Prompt.TailFrom])
		s.known = 0
	}
	for i, t := range s.tokens[s.known:] {
		if t < 0 || int(t) >= w.limits.Vocab {
			return nil, fmt.Errorf("%w: prompt token %d is %d, the model has tokens 0 to %d", gpuexec.ErrUnsupported, s.known+i, t, w.limits.Vocab-1)
		}
	}
	// What must come out: delivered tokens first, then those of a replay.
	s.forced = append(s.forced, op.Delivered...)
	if len(r.Force) > len(s.forced) {
		s.forced = append(s.forced, r.Force[len(s.forced):]...)
	}
	for i, t := range s.forced {
		if t < 0 || int(t) >= w.limits.Vocab {
			return nil, fmt.Errorf("%w: forced token %d is %d, the model has tokens 0 to %d", gpuexec.ErrUnsupported, i, t, w.limits.Vocab-1)
		}
	}
	if op.Stage == schemas.StageDecode && s.known > 0 && r.Sampling.RepetitionPenalty != 0 && r.Sampling.RepetitionPenalty != 1 {
		return &schemas.OpenDone{NeedHead: true}, nil // the penalty counts the prompt's tokens
	}
	var err error
	if s.root, err = w.cfg.Keys.Root(r.Keys, w.cfg.Format); err != nil {
		return nil, err
	}
	if s.uncached && s.known > 0 || !w.nameBlocks(s) {
		return &schemas.OpenDone{NeedHead: true}, nil
	}
	if err := w.readAs(s); err != nil {
		return nil, err
	}
	if err := w.prepare(s, op.Stage); err != nil {
		return nil, err
	}
	done, err := w.importBlocks(s, op)
	if err == nil && !done.NeedHead {
		err = w.show(s, op.Seq)
	}
	if w.seqs[op.Seq] == nil && s.grammar != nil {
		s.grammar.Close() // it was not opened
	}
	if err != nil {
		return nil, err
	}
	return done, nil
}

// prepare makes sampler and grammar of a turn that will be decoded here.
func (w *Worker) prepare(s *seq, stage schemas.Stage) error {
	if stage != schemas.StageDecode {
		return nil
	}
	p := s.ready.Sampling
	params := sampling.Params{
		Temperature: p.Temperature, TopK: p.TopK, TopP: p.TopP, MinP: p.MinP, RepeatPenalty: p.RepetitionPenalty,
		FrequencyPenalty: p.FrequencyPenalty, PresencePenalty: p.PresencePenalty, Seed: p.Seed,
	}
	if len(p.Bias) > 0 {
		params.LogitBias = make(map[int32]float64, len(p.Bias))
		for id, v := range p.Bias {
			n, err := strconv.ParseInt(id, 10, 32)
			if err != nil {
				return fmt.Errorf("%w: logit_bias names token %q, which is not a number", sampling.ErrParams, id)
			}
			params.LogitBias[int32(n)] = v
		}
	}
	var err error
	if s.sampler, err = sampling.New(params, w.limits.Vocab, s.tokens, &w.scratch); err != nil {
		return err
	}
	if p.Grammar == "" {
		return nil
	}
	c, ok := w.cfg.Engine.(gpuexec.Constrainer)
	if !ok {
		return fmt.Errorf("%w: engine %s cannot constrain sampling", gpuexec.ErrUnsupported, w.cfg.Engine.Info().Engine)
	}
	if s.grammar, err = c.Constrain(p.Grammar); err != nil && !errors.Is(err, gpuexec.ErrUnsupported) {
		// No other executor would take it either, and no try will be better.
		return fmt.Errorf("%w: %w", gpuexec.ErrUnsupported, err)
	}
	return err
}

// nameBlocks computes the chain keys of the prompt's whole blocks. With the
// prompt's head unknown it walks back from the last key of the path; false means
// that a block on the way is gone, so that the head's tokens are needed.
func (w *Worker) nameBlocks(s *seq) bool {
	head := s.known / blockTokens
	if head > 0 {
		path := s.ready.Prompt.Path
		if len(path) == 0 || path[len(path)-1].From+path[len(path)-1].N != head {
			return false
		}
		var k Key
		if n, err := hex.Decode(k[:], []byte(path[len(path)-1].Key)); err != nil || n != len(k) {
			return false
		}
		s.keys = make([]Key, head)
		for i := head - 1; ; i-- {
			s.keys[i] = k
			parent, index, ok := w.cfg.Tier.Parent(k)
			if !ok || index != i {
				s.keys = nil
				return false
			}
			if i == 0 {
				if parent != s.root { // another engine's blocks
					s.keys = nil
					return false
				}
				break
			}
			k = parent
		}
	}
	w.extendKeys(s, s.promptBlocks())
	return true
}

// extendKeys names blocks up to count, as far as their tokens are known.
func (w *Worker) extendKeys(s *seq, count int) {
	if s.uncached {
		return
	}
	for i := len(s.keys); i < count && (i+1)*blockTokens <= len(s.tokens); i++ {
		parent := s.root
		if i > 0 {
			parent = s.keys[i-1]
		}
		s.keys = append(s.keys, w.chain(s, parent, i, s.tokens))
	}
}

// importBlocks leases the longest resident prefix, copies it into the engine and
// checks that no block changed under the copy.
func (w *Worker) importBlocks(s *seq, op *schemas.OpenOp) (*schemas.OpenDone, error) {
	want := s.promptBlocks()
	var keys []Key
	if !s.uncached {
		keys = s.keys[:want]
	}
	// Log-probabilities need the logits of every token, and text that is sent again
	// needs every token, so those are computed again.
	tail := 0 // tokens of the block behind keys that is filled in part
	if n := len(op.Delivered); n > 0 && op.Stage == schemas.StageDecode && s.ready.Sampling.Logprobs == 0 && !op.Again && !s.uncached {
		keys, tail = w.keysWithDelivered(s, op.Delivered)
	}
	if done := w.resume(s, op, keys); done != nil {
		return done, nil
	}
	w.vacate(op.Seq)
	refs := w.cfg.Tier.Lease(keys)
	// Beyond the prompt only blocks that decode made are bit-equal to what the
	// earlier attempt computed.
	for i := want; i < len(refs); i++ {
		if !refs[i].Decoded {
			w.cfg.Tier.Release(refs[i:])
			refs = refs[:i]
			break
		}
	}
	if len(refs) < len(keys) {
		tail = 0
	}
	if len(refs)*blockTokens < s.known { // evicted between naming and leasing
		w.cfg.Tier.Release(refs)
		return &schemas.OpenDone{NeedHead: true}, nil
	}
	n, tail, err := w.copyIn(w.at[op.Seq], refs, tail)
	w.cfg.Tier.Release(refs)
	if err != nil {
		return nil, err
	}
	if n*blockTokens < s.known {
		w.cfg.Engine.Drop(w.at[op.Seq])
		return &schemas.OpenDone{NeedHead: true}, nil
	}
	s.sealed = n
	if have := n*blockTokens + tail; have >= s.n { // the prompt's tail and some delivered tokens are in place
		s.started = true
		w.accept(s, have-s.n)
	}
	w.seqs[op.Seq] = s
	done := &schemas.OpenDone{Cached: min(n*blockTokens, s.n), Missing: max(0, want-n), Gone: w.gone(s, n)}
	done.Started = s.started && len(s.tokens)-s.n == len(op.Delivered)
	return done, nil
}

// gone asks why block n is not there, if it had been computed: nil if it had not, or
// if nobody knows.
func (w *Worker) gone(s *seq, n int) *schemas.Gone {
	m, ok := w.cfg.Tier.(Rememberer)
	if !ok || s.uncached || n >= min(s.promptBlocks(), gpuexec.KnownBlocks(s.ready)) {
		return nil
	}
	g, ok := m.Why(s.keys[n])
	if !ok {
		return nil
	}
	return &g
}

// keysWithDelivered names the blocks of the prompt and the delivered tokens whose
// KV an earlier attempt may have sealed: all tokens but the last. The last key may be
// of a block with fewer tokens, tail, if that is not 0.
func (w *Worker) keysWithDelivered(s *seq, delivered []int32) (keys []Key, tail int) {
	keys = append(keys, s.keys[:s.promptBlocks()]...)
	all := append(append([]int32(nil), s.tokens...), delivered...)
	for i := len(keys); (i+1)*blockTokens <= len(all)-1; i++ {
		parent := s.root
		if i > 0 {
			parent = keys[i-1]
		}
		if i*blockTokens < s.known {
			return keys, 0
		}
		keys = append(keys, w.chain(s, parent, i, all))
	}
	fed := len(all) - 1
	if k, ok := w.tailKey(s, s.parent(keys, len(keys)), all[:fed]); ok && fed >= s.n {
		return append(keys, k), fed % blockTokens
	}
	return keys, 0
}

// accept takes the first n forced tokens as generated, without a step. The KV of
// the last of them is in place too.
func (w *Worker) accept(s *seq, n int) {
	// The token after the imported blocks must still be fed, so the loop in
	// decode.go continues with the last token that is not in the KV.
	for i := range n + 1 {
		w.append(s, s.forced[i])
	}
}

// copyIn imports blocks and returns how many whole ones are in the engine, and how many
// tokens of the last block, which holds only tail tokens if that is not 0. A block that
// changed while it was copied makes the import start again with fewer.
func (w *Worker) copyIn(id gpuexec.SeqID, refs []Ref, tail int) (blocks, rest int, err error) {
	for len(refs) > 0 {
		src := make([][]byte, len(refs))
		for i, r := range refs {
			src[i] = w.cfg.Tier.Data(r)
		}
		took, err := w.load(id, src, tail)
		good := len(refs)
		for i, r := range refs {
			if !w.cfg.Tier.Valid(r) {
				good = i
				break
			}
		}
		switch {
		case good == len(refs) && err == nil && took:
			return good - 1, tail, nil
		case good == len(refs) && err == nil && tail > 0:
			return good - 1, 0, nil
		case good == len(refs) && err == nil:
			return good, 0, nil
		case good == len(refs) && errors.Is(err, gpuexec.ErrBadBlock):
			return 0, 0, nil // bytes that this engine cannot read: they are computed again
		case good == len(refs):
			return 0, 0, err
		}
		w.cfg.Engine.Drop(id)
		refs, tail = refs[:good], 0
	}
	return 0, 0, nil
}
