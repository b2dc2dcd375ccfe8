package kvtier

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

const blockDomain = "weir kv block v1\x00"

// Media is one image or other medium whose placeholder tokens stand in the
// prompt. Tokens alone do not tell two images apart, so its digest is part of
// the key of every block that it touches.
type Media struct {
	Digest string // digest of the medium's content after preprocessing options
	Offset int    // first placeholder token: from the block's start in Chain (negative if it began earlier), from the prompt's start in a Chainer
	Length int    // number of placeholder tokens
}

// Chain returns the key of the block that holds tokens and follows parent (the
// spec's root for index 0). It is SHA-256 of
//
//	"weir kv block v1\x00"
//	0x20, length 32 as 4 bytes big endian, parent key
//	0x21, length 8,  index as 8 bytes big endian
//	0x22, length 4n, n tokens, 4 bytes little endian each
//	for each medium in order of offset:
//	  0x23, length 16+d, offset 8 bytes big endian (two's complement), length 8 bytes big endian, digest d bytes
//
// A medium without digest or length, out of order, or outside the block returns
// ErrNotCacheable: the caller then neither stores nor looks up blocks of this turn.
func Chain(parent Key, index int, tokens []int32, media []Media) (Key, error) {
	if index < 0 {
		return Key{}, fmt.Errorf("%w: index %d", ErrBadBlock, index)
	}
	last := -1 << 62
	for i, m := range media {
		if err := m.check(i, last); err != nil {
			return Key{}, err
		}
		if m.Offset >= len(tokens) || m.Offset+m.Length <= 0 {
			return Key{}, fmt.Errorf("%w: medium %d covers tokens %d to %d of a block of %d",
				ErrNotCacheable, i, m.Offset, m.Offset+m.Length, len(tokens))
		}
		last = m.Offset + m.Length
	}
	b := appendBlock(make([]byte, 0, 96+4*len(tokens)), &parent, index, tokens)
	for _, m := range media {
		b = appendMedia(b, m, 0)
	}
	return sha256.Sum256(b), nil
}

// check reports why medium i cannot be named; end is where the one before ended.
func (m Media) check(i, end int) error {
	switch {
	case m.Digest == "":
		return fmt.Errorf("%w: medium %d has no digest", ErrNotCacheable, i)
	case m.Length <= 0:
		return fmt.Errorf("%w: medium %d has length %d", ErrNotCacheable, i, m.Length)
	case m.Offset < end:
		return fmt.Errorf("%w: medium %d starts at token %d before the end of the one before it at %d",
			ErrNotCacheable, i, m.Offset, end)
	case m.Offset > 1<<40 || m.Length > 1<<40:
		return fmt.Errorf("%w: medium %d covers %d tokens from %d", ErrNotCacheable, i, m.Length, m.Offset)
	}
	return nil
}

func appendBlock(b []byte, parent *Key, index int, tokens []int32) []byte {
	b = append(b, blockDomain...)
	b = append(appendHead(b, tagParent, len(parent)), parent[:]...)
	b = binary.BigEndian.AppendUint64(appendHead(b, tagIndex, 8), uint64(index))
	b = appendHead(b, tagTokens, 4*len(tokens))
	for _, t := range tokens {
		b = binary.LittleEndian.AppendUint32(b, uint32(t))
	}
	return b
}

func appendMedia(b []byte, m Media, start int) []byte {
	b = appendHead(b, tagMedia, 16+len(m.Digest))
	b = binary.BigEndian.AppendUint64(b, uint64(int64(m.Offset-start)))
	b = binary.BigEndian.AppendUint64(b, uint64(int64(m.Length)))
	return append(b, m.Digest...)
}

// Chainer names the blocks of one token sequence as it grows. Tokens may come in
// pieces of any size; a key appears when its block is full. It allocates only
// when its buffer grows (blocks with much media).
type Chainer struct {
	parent  Key
	index   int
	pending []int32 // tokens of the block that is not full
	media   []Media // those that end after the block being filled, offsets from the sequence's start
	buf     []byte
	size    int
}

// NewChainer starts at root with blocks of blockTokens tokens. Media offsets
// count from the first token. Media that are not fully described return
// ErrNotCacheable.
func NewChainer(root Key, blockTokens int, media []Media) (*Chainer, error) {
	if blockTokens <= 0 {
		return nil, fmt.Errorf("%w: block of %d tokens", ErrBadBlock, blockTokens)
	}
	end := 0
	for i, m := range media {
		if err := m.check(i, end); err != nil {
			return nil, err
		}
		end = m.Offset + m.Length
	}
	return &Chainer{
		parent: root, size: blockTokens, media: media,
		pending: make([]int32, 0, blockTokens), buf: make([]byte, 0, 256+4*blockTokens),
	}, nil
}

// Resume moves the chainer to just behind block index, whose key is last.
// Tokens of a block that was not full are forgotten.
func (c *Chainer) Resume(last Key, index int) {
	c.parent, c.index, c.pending = last, index+1, c.pending[:0]
}

// Tail returns the key behind which the next block will hang, and that block's index.
func (c *Chainer) Tail() (parent Key, index int) { return c.parent, c.index }

// Pending is the number of tokens in the block that is not full.
func (c *Chainer) Pending() int { return len(c.pending) }

// Append adds tokens and appends the keys of the blocks that they fill to dst.
func (c *Chainer) Append(dst []Key, tokens ...int32) []Key {
	for len(tokens) > 0 {
		block := tokens
		if len(c.pending) == 0 && len(tokens) >= c.size {
			block, tokens = tokens[:c.size], tokens[c.size:]
		} else {
			n := min(len(tokens), c.size-len(c.pending))
			c.pending, tokens = append(c.pending, tokens[:n]...), tokens[n:]
			if len(c.pending) < c.size {
				return dst
			}
			block = c.pending
		}
		dst = append(dst, c.seal(block))
		c.pending = c.pending[:0]
	}
	return dst
}

// seal names one full block and moves behind it.
func (c *Chainer) seal(tokens []int32) Key {
	b := appendBlock(c.buf[:0], &c.parent, c.index, tokens)
	start := c.index * c.size
	for _, m := range c.media {
		if m.Offset >= start+c.size {
			break
		}
		if m.Offset+m.Length > start {
			b = appendMedia(b, m, start)
		}
	}
	c.buf = b[:0]
	c.parent = sha256.Sum256(b)
	c.index++
	return c.parent
}
