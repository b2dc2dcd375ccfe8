package worker

import (
	"fmt"

	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/schemas"
)

// uncached reports a prompt whose blocks have no safe name: two images of which one
// has no digest could share one.
func uncached(p *schemas.Prompt) bool {
	for _, m := range p.Media {
		if m.Digest == "" {
			return true
		}
	}
	return p.Uncached
}

// chain names block i of a sequence with these tokens.
func (w *Worker) chain(s *seq, parent Key, i int, tokens []int32) Key {
	from := i * blockTokens
	return w.cfg.Keys.Chain(parent, i, tokens[from:from+blockTokens], blockMedia(s.ready.Prompt.Media, from))
}

// blockMedia is the media that touch tokens from..from+63, with offsets from there.
func blockMedia(media []schemas.MediaSpan, from int) (out []schemas.MediaSpan) {
	for _, m := range media {
		if m.Offset >= from+blockTokens {
			break // they come in order
		}
		if m.Offset+m.Length > from {
			m.Offset -= from
			out = append(out, m)
		}
	}
	return out
}

// show tells the engine what a sequence's placeholder tokens stand for. The sequence
// is gone on an error.
func (w *Worker) show(s *seq, id int32) error {
	if len(s.ready.Prompt.Media) == 0 {
		return nil
	}
	e, ok := w.cfg.Engine.(gpuexec.MediaTaker)
	err := fmt.Errorf("%w: engine %s takes no images, the prompt has %d", gpuexec.ErrUnsupported, w.cfg.Engine.Info().Engine, len(s.ready.Prompt.Media))
	if ok {
		err = e.SetMedia(w.at[id], s.ready.Prompt.Media)
	}
	if err != nil {
		w.seqs[id] = nil
		w.cfg.Engine.Drop(w.at[id])
	}
	return err
}
