package exact

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"math/rand/v2"

	"github.com/weir-dev/weir/schemas"
)

// Condition is the state in which a turn meets the stack.
type Condition string

// The conditions.
const (
	Cold    Condition = "cold"    // nothing of the prompt is in memory
	Evicted Condition = "evicted" // it was computed before and pressed out
	Partial Condition = "partial" // a shorter turn left blocks, some of them generated
	Beside  Condition = "beside"  // eight other sequences decode meanwhile
	// Moved is no cell of the matrix: the turn is handed to another executor in the
	// middle of its decode, because the two executors change roles.
	Moved Condition = "moved"
)

// Sampling names.
const (
	Greedy = "greedy"
	Seeded = "seeded"
)

// Case is one cell of the matrix.
type Case struct {
	Engine    string // llama or go
	Preset    string // of the model
	Sampling  string
	Prompt    int // tokens
	Condition Condition
}

// String names the case in output.
func (c Case) String() string {
	return fmt.Sprintf("%s-%s/%s/%d/%s", c.Engine, c.Preset, c.Sampling, c.Prompt, c.Condition)
}

// Outcome is what a case showed.
type Outcome struct {
	Case
	Digest      string // of the stack's tokens
	Generated   int
	TokensEqual bool
	Cached      int // prompt tokens that the stack found
	WantCached  int // and those that the reference found
	Blocks      int // sealed blocks that were compared
	BlocksOff   int // of these, missing or with other bytes or another origin
	PrefillOn   string
	DecodeOn    string
	Attempt     int
	Problem     string // why the case could not be judged, or what else was wrong
}

// KVEqual reports whether all blocks are bit-equal.
func (o *Outcome) KVEqual() bool { return o.Problem == "" && o.BlocksOff == 0 }

// Same reports whether the case is as one process would have computed it.
func (o *Outcome) Same() bool {
	return o.Problem == "" && o.TokensEqual && o.Cached == o.WantCached
}

// maxNew tokens are generated: more than one block, so that at least one block
// boundary is crossed and one block of generated tokens is sealed.
const maxNew = 66

// movedNew is the same for Moved: what is left when roles change must take longer
// than an executor would rather wait for than hand over.
const movedNew = 500

func (c Case) maxNew() int {
	if c.Condition == Moved {
		return movedNew
	}
	return maxNew
}

// seed of sampled turns.
const seed = 20261

// samplingOf are the parameters by name.
func samplingOf(name string) schemas.Sampling {
	if name == Greedy {
		return schemas.Sampling{Seed: seed}
	}
	return schemas.Sampling{Temperature: 0.8, TopP: 0.95, Seed: seed}
}

// prompt draws n tokens that depend on the case's sampling and length only: the
// conditions of one prompt are compared with one reference.
func (c Case) prompt(vocab int) schemas.Tokens {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s/%d", c.Sampling, c.Prompt)
	r := rand.New(rand.NewPCG(h.Sum64(), 1))
	out := make(schemas.Tokens, c.Prompt)
	for i := range out {
		out[i] = 3 + r.Int32N(int32(vocab)-3) // 0 to 2 are control tokens
	}
	return out
}

// shorter is the turn that runs before a partial hit: two thirds of the prompt, and
// what follows there as forced output, so that a block of generated tokens is among
// those found.
func shorter(prompt schemas.Tokens) (head, force schemas.Tokens) {
	m := max(1, len(prompt)*2/3)
	return prompt[:m], prompt[m:min(len(prompt), m+70)]
}

// digest is a short name of a token sequence.
func digest(tokens []int32) string {
	h := sha256.New()
	var b [4]byte
	for _, t := range tokens {
		binary.LittleEndian.PutUint32(b[:], uint32(t))
		h.Write(b[:])
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
