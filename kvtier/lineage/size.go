package lineage

import (
	"fmt"

	"github.com/weir-dev/weir/schemas"
)

// jobRoom is what a job adds to the message of its turn, in bytes, generously: most
// of it are up to schemas.MaxSpans spans.
const jobRoom = 8 << 10

// tooLarge refuses a turn that fits no message: what is not known of its prompt
// travels in it. The size is estimated first, so that few are encoded twice.
func tooLarge(r *schemas.Ready) *schemas.Failure {
	// A token takes at most 8 bytes, a byte of a grammar at most 6, an image 512.
	most := 8*(len(r.Prompt.Tail)+len(r.Force)) + 512*len(r.Prompt.Media) + 6*len(r.Sampling.Grammar) + 64*len(r.Sampling.Bias) + 6*schemas.MaxStops*schemas.MaxStopLen
	if most < schemas.MaxMessage-2*jobRoom {
		return nil
	}
	b, err := schemas.Encode(r)
	if err == nil && len(b) <= schemas.MaxMessage-jobRoom {
		return nil
	}
	return &schemas.Failure{
		Code: schemas.CodeTooLong, Param: "messages",
		Message: fmt.Sprintf("%d prompt tokens that were not computed before, %d forced tokens and the grammar do not fit a message of %d bytes; send the context in several turns",
			len(r.Prompt.Tail), len(r.Force), schemas.MaxMessage),
	}
}
