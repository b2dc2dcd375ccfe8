package worker

import (
	"fmt"

	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/gpuexec/chat"
	"github.com/weir-dev/weir/schemas"
)

// reader says how the answer's text becomes a message.
type reader struct {
	spec chat.Spec
	// shown are control tokens whose text belongs to the answer, because the parser
	// must see it. The others stay hidden.
	shown map[int32]bool
}

// readAs prepares for what Ready.Parse says.
func (w *Worker) readAs(s *seq) error {
	spec, err := chat.ParseSpec(s.ready.Parse)
	if err != nil {
		return fmt.Errorf("%w: %w", gpuexec.ErrUnsupported, err)
	}
	s.reader = reader{spec, w.markers(spec.Family)}
	return nil
}

// markers finds the tokens of a family's markers, once.
func (w *Worker) markers(f chat.Family) map[int32]bool {
	if shown, ok := w.shown[f]; ok || f == "" {
		return shown
	}
	shown := map[int32]bool{}
	for _, text := range chat.Markers(f) {
		// Where a marker is several tokens, they are no control tokens.
		ids, err := w.cfg.Vocab.Tokenize(text, false, true)
		if err == nil && len(ids) == 1 && string(w.cfg.Vocab.Piece(ids[0], true)) == text {
			shown[ids[0]] = true
		}
	}
	w.shown[f] = shown
	return shown
}

// message fills in what the whole answer means.
func (s *seq) message(row *schemas.DecodeRow) {
	if s.reader.spec == (chat.Spec{}) {
		return
	}
	p := chat.NewParser(s.reader.spec, s.ready.Job)
	p.Add(row.Answer)
	p.End()
	row.Message = p.Message()
	if p.Calls() > 0 && row.Finish == "stop" {
		row.Finish = "tool_calls"
	}
}
