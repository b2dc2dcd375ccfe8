package nullengine

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/schemas"
)

// imageCell marks a cell that holds a piece of an image instead of a token id.
const imageCell = 1 << 31

// Vision is the FAKE engine with images. It sees nothing: a placeholder token's
// cell is a hash of the image's digest and the position in it, and what follows an
// image depends on all image cells before it. So a block that was shared between
// two images shows as other KV bytes and as another answer. It cannot show whether
// an image was read, decoded or understood.
type Vision struct{ *Engine }

var (
	_ gpuexec.StepEngine = (*Vision)(nil)
	_ gpuexec.MediaTaker = (*Vision)(nil)
)

// NewVision makes an engine that takes images. Errors are those of New.
func NewVision(o Options) (*Vision, error) {
	e, err := New(o)
	if err != nil {
		return nil, err
	}
	e.sight = &sight{media: make([][]span, len(e.slots)), seen: make([]uint32, len(e.slots))}
	return &Vision{e}, nil
}

// Info differs from that of New: the two do not read each other's blocks.
func (v *Vision) Info() gpuexec.Info {
	info := v.Engine.Info()
	info.Numerics = "vision"
	return info
}

// SetMedia tells what the placeholder tokens of a sequence stand for. The error
// wraps gpuexec.ErrBadBatch: an id outside the slots.
func (v *Vision) SetMedia(seq gpuexec.SeqID, media []schemas.MediaSpan) error {
	if seq < 0 || int(seq) >= len(v.slots) {
		return fmt.Errorf("media of sequence %d of %d: %w", seq, len(v.slots), gpuexec.ErrBadBatch)
	}
	spans := make([]span, len(media))
	for i, m := range media {
		sum := sha256.Sum256([]byte(m.Digest))
		spans[i] = span{from: int32(m.Offset), to: int32(m.Offset + m.Length), hash: binary.BigEndian.Uint32(sum[:])}
	}
	v.sight.media[seq] = spans
	return nil
}

// span is one image of a sequence: placeholder tokens from..to-1.
type span struct {
	from, to int32
	hash     uint32
}

// sight is what the sequences of an engine have seen.
type sight struct {
	media [][]span // by slot
	seen  []uint32 // by slot: hash of all image cells, 0 for none
}

// look returns the cell of a row, and remembers it when it is a piece of an image.
func (s *sight) look(r gpuexec.Row) int32 {
	if r.Token != TokenImage {
		return r.Token
	}
	for _, m := range s.media[r.Seq] {
		if r.Pos >= m.from && r.Pos < m.to {
			cell := int32(mix(m.hash, uint32(r.Pos-m.from)) | imageCell)
			s.fold(r.Seq, cell)
			return cell
		}
	}
	return r.Token
}

func (s *sight) fold(seq gpuexec.SeqID, cell int32) { s.seen[seq] = mix(s.seen[seq], uint32(cell)) | 1 }

func (s *sight) drop(seq gpuexec.SeqID) { s.media[seq], s.seen[seq] = nil, 0 }

// next is Next for a sequence that has seen no image, and something else after
// each other one.
func (s *sight) next(r gpuexec.Row) int32 {
	seen := s.seen[r.Seq]
	if seen == 0 {
		return Next(r.Token, r.Pos)
	}
	return Next(r.Token, int32(mix(seen, uint32(r.Pos))>>8))
}

// mix is the finalizer of MurmurHash3 (Appleby, public domain) over two words.
func mix(a, b uint32) uint32 {
	h := a*0x9E3779B1 + b
	h = (h ^ h>>16) * 0x85EBCA6B
	h = (h ^ h>>13) * 0xC2B2AE35
	return h ^ h>>16
}
