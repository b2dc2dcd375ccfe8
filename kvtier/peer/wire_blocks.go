package peer

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/weir-dev/weir/kvtier"
)

// request is a list of one extent, or a get of keys.
type request struct {
	op   byte
	n    int
	from int
	keys []kvtier.Key // the extent's last block, or the blocks
}

func appendRequest(b []byte, q request) []byte {
	at := len(b)
	b = append(b, q.op, 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(q.n))
	b = binary.BigEndian.AppendUint32(b, uint32(q.from))
	b = append(b, 0, 0, 0, 0)
	for i := range q.keys {
		b = append(b, q.keys[i][:]...)
	}
	binary.BigEndian.PutUint32(b[at+12:], sum(b[at:at+12], b[at+requestBytes:]))
	return b
}

// readRequest reads the body of a request whose head is there. buf is used again.
func readRequest(r io.Reader, head *[requestBytes]byte, buf []byte) (request, []byte, error) {
	q := request{op: head[0], n: int(binary.BigEndian.Uint32(head[4:])), from: int(binary.BigEndian.Uint32(head[8:]))}
	keys := 1
	switch {
	case q.op == opList && q.n >= 1 && q.n <= maxList && q.from <= maxIndex-q.n:
	case q.op == opGet && q.n >= 1 && q.n <= maxGet && q.from == 0:
		keys = q.n
	default:
		return q, buf, fmt.Errorf("%w: request %d for %d blocks from %d", ErrProtocol, q.op, q.n, q.from)
	}
	buf = append(buf[:0], make([]byte, keys*keyBytes)...)
	if _, err := io.ReadFull(r, buf); err != nil {
		return q, buf, err
	}
	if err := checkSum("request", binary.BigEndian.Uint32(head[12:]), head[:12], buf); err != nil {
		return q, buf, err
	}
	q.keys = make([]kvtier.Key, keys)
	for i := range q.keys {
		q.keys[i] = kvtier.Key(buf[i*keyBytes:])
	}
	return q, buf, nil
}

// appendList answers list: a chain without gaps. With another status than OK it is
// empty.
func appendList(b []byte, s status, chain []kvtier.Block) []byte {
	at := len(b)
	b = append(b, byte(s), 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(len(chain)))
	from, parent := 0, kvtier.Key{}
	if len(chain) > 0 {
		from, parent = chain[0].Index, chain[0].Parent
	}
	b = binary.BigEndian.AppendUint32(b, uint32(from))
	b = append(b, 0, 0, 0, 0)
	b = append(b, parent[:]...)
	for i := range chain {
		b = append(append(b, chain[i].Key[:]...), byte(chain[i].Origin))
	}
	binary.BigEndian.PutUint32(b[at+12:], sum(b[at:at+12], b[at+listBytes:]))
	return b
}

// readList reads the answer to a list of at most n blocks.
func readList(r io.Reader, n int) ([]kvtier.Block, status, error) {
	var head [listBytes]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, 0, err
	}
	got, from := int(binary.BigEndian.Uint32(head[4:])), int(binary.BigEndian.Uint32(head[8:]))
	if got > min(n, maxList) || from > maxIndex-got {
		return nil, 0, fmt.Errorf("%w: %d blocks from %d, asked for %d", ErrProtocol, got, from, n)
	}
	body := make([]byte, keyBytes+got*entryBytes)
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, 0, err
	}
	if err := checkSum("list", binary.BigEndian.Uint32(head[12:]), head[:12], body); err != nil {
		return nil, 0, err
	}
	chain := make([]kvtier.Block, got)
	parent := kvtier.Key(body[:keyBytes])
	for i := range chain {
		e := body[keyBytes+i*entryBytes:][:entryBytes]
		chain[i] = kvtier.Block{Key: kvtier.Key(e), Parent: parent, Index: from + i, Origin: kvtier.Origin(e[keyBytes])}
		parent = chain[i].Key
	}
	return chain, status(head[0]), nil
}

// block is the head of one block in an answer to get.
type block struct {
	kvtier.Block
	status status
	sum    uint32 // of the data
}

// put writes a block's head.
func (k *block) put(b *[blockBytes]byte) {
	b[0], b[1], b[2], b[3] = byte(k.status), byte(k.Origin), 0, 0
	binary.BigEndian.PutUint32(b[4:], uint32(k.Index))
	binary.BigEndian.PutUint32(b[8:], k.sum)
	copy(b[12:], k.Key[:])
	copy(b[44:], k.Parent[:])
	binary.BigEndian.PutUint32(b[76:], sum(b[:76]))
}

// parseBlock reads the head of the answer for key.
func parseBlock(b *[blockBytes]byte, key kvtier.Key) (k block, err error) {
	if err := checkSum("block", binary.BigEndian.Uint32(b[76:]), b[:76]); err != nil {
		return k, err
	}
	k = block{
		status: status(b[0]), sum: binary.BigEndian.Uint32(b[8:]),
		Block: kvtier.Block{
			Key: kvtier.Key(b[12:]), Parent: kvtier.Key(b[44:]), Index: int(binary.BigEndian.Uint32(b[4:])), Origin: kvtier.Origin(b[1]),
		},
	}
	switch {
	case k.Key != key:
		return k, fmt.Errorf("%w: block %s instead of %s", ErrProtocol, k.Key.Short(), key.Short())
	case k.status > statusMissing || k.Origin > kvtier.OriginDecode || k.Index >= maxIndex || k.status == statusOK && k.Key == k.Parent:
		return k, fmt.Errorf("%w: block %s with status %d, origin %d, index %d", ErrProtocol, k.Key.Short(), k.status, k.Origin, k.Index)
	}
	return k, nil
}
