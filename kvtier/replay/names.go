package replay

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/weir-dev/weir/kvtier/workload"
)

const blockTokens = workload.BlockTokens

// vocabulary is the number of token ids. Three digits a token let a cold prompt of
// 200,000 tokens fit one message, as the tokens of a real vocabulary nearly do.
const vocabulary = 1000

// fresh is the first block id of a session that its load does not name: the ends of
// prompts and answers that nothing goes on from. Ids of a load are smaller.
const fresh int32 = 1 << 29

// tokenOf is token off of block id. It depends on nothing else, so that equal blocks are
// equal tokens in whatever message they stand.
func tokenOf(session, id, off int32) int32 {
	if id >= workload.Global {
		session = -1
	}
	x := uint64(uint32(session))<<32 | uint64(uint32(id))
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x += uint64(off) * 0x9e3779b97f4a7c15
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return int32((x ^ x>>31) % vocabulary)
}

// piece is n tokens of consecutive blocks from token off of block id on.
type piece struct{ id, off, n int32 }

// span appends the pieces of tokens from..to-1 of the blocks that runs are.
func span(dst []piece, runs []workload.Run, from, to int32) []piece {
	at := int32(0)
	for _, r := range runs {
		end := at + r.N*blockTokens
		if a, b := max(from, at), min(to, end); a < b {
			dst = append(dst, piece{id: r.From + (a-at)/blockTokens, off: (a - at) % blockTokens, n: b - a})
		}
		if at = end; at >= to {
			break
		}
	}
	return dst
}

// appendTokens appends the tokens of pieces.
func appendTokens(dst []int32, session int32, ps []piece) []int32 {
	for _, p := range ps {
		id, off := p.id, p.off
		for range p.n {
			dst = append(dst, tokenOf(session, id, off))
			if off++; off == blockTokens {
				id, off = id+1, 0
			}
		}
	}
	return dst
}

// appendName writes which tokens a text stands for: session:id.off+n,id.off+n …
func appendName(dst []byte, session int32, ps []piece) []byte {
	dst = append(strconv.AppendInt(append(dst, 's'), int64(session), 10), ':')
	for i, p := range ps {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(strconv.AppendInt(dst, int64(p.id), 10), '.')
		dst = append(strconv.AppendInt(dst, int64(p.off), 10), '+')
		dst = strconv.AppendInt(dst, int64(p.n), 10)
	}
	return dst
}

// parseName reads what appendName wrote.
func parseName(b []byte, ps []piece) (session int32, out []piece, err error) {
	bad := func() (int32, []piece, error) {
		return 0, nil, fmt.Errorf("replay: %.60q names no blocks", b)
	}
	head, rest, ok := bytes.Cut(b, []byte{':'})
	if !ok || len(head) < 2 || head[0] != 's' {
		return bad()
	}
	s, err := strconv.ParseInt(string(head[1:]), 10, 32)
	if err != nil {
		return bad()
	}
	for len(rest) > 0 {
		var v [3]int64
		for i, end := range [...]byte{'.', '+', ','} {
			k := bytes.IndexByte(rest, end)
			if k < 0 && end == ',' {
				k = len(rest)
			}
			if k <= 0 {
				return bad()
			}
			if v[i], err = strconv.ParseInt(string(rest[:k]), 10, 32); err != nil || v[i] < 0 {
				return bad()
			}
			rest = rest[min(k+1, len(rest)):]
		}
		if v[1] >= blockTokens || v[2] > workload.MaxTokens {
			return bad()
		}
		ps = append(ps, piece{int32(v[0]), int32(v[1]), int32(v[2])})
	}
	return int32(s), ps, nil
}
