package peer

import (
	"bytes"
	"io"
	"testing"

	"github.com/weir-dev/weir/kvtier"
)

// What is read from the network is refused or means exactly what was read: writing it
// again gives the same bytes. Nothing panics and nothing is allocated beyond the bounds.
func FuzzMessages(f *testing.F) {
	chain := testChain("a", 3)
	var b block
	b.Block, b.sum = chain[1], 7
	var head [blockBytes]byte
	b.put(&head)
	h := hello{pool: testPool, block: testBlock, nonce: nonce{1}, mac: mac{2}}
	f.Add(appendGreeting(nil, nonce{3}))
	f.Add(appendHello(nil, h))
	f.Add(appendWelcome(nil, statusNoPool, "no", mac{4}))
	f.Add(appendRequest(nil, request{op: opList, n: 3, from: 4, keys: keysOf(chain[:1])}))
	f.Add(appendRequest(nil, request{op: opGet, n: 3, keys: keysOf(chain)}))
	f.Add(appendList(nil, statusOK, chain))
	f.Add(head[:])
	f.Fuzz(func(t *testing.T, in []byte) {
		again := func(what string, out []byte) {
			if len(out) > len(in) || !bytes.Equal(clean(what, out), clean(what, in[:len(out)])) {
				t.Fatalf("%s %x was read, it means %x", what, in, out)
			}
		}
		if n, err := readGreeting(bytes.NewReader(in)); err == nil {
			again("greeting", appendGreeting(nil, n))
		}
		if h, err := readHello(bytes.NewReader(in)); err == nil {
			again("hello", appendHello(nil, h))
		}
		if s, text, m, err := readWelcome(bytes.NewReader(in)); err == nil {
			again("welcome", appendWelcome(nil, s, text, m))
		}
		if len(in) >= requestBytes {
			r := bytes.NewReader(in[requestBytes:])
			if q, _, err := readRequest(r, (*[requestBytes]byte)(in), nil); err == nil {
				again("request", appendRequest(nil, q))
			}
		}
		if chain, s, err := readList(bytes.NewReader(in), maxList); err == nil && len(chain) > 0 {
			again("list", appendList(nil, s, chain))
		}
		if len(in) >= blockBytes {
			if k, err := parseBlock((*[blockBytes]byte)(in), kvtier.Key(in[12:44])); err == nil {
				var head [blockBytes]byte
				k.put(&head)
				again("block", head[:])
			}
		}
	})
}

// clean takes out what has no meaning: bytes that a reader does not look at, and the
// checksum over them.
func clean(what string, b []byte) []byte {
	c := bytes.Clone(b)
	switch what {
	case "greeting":
		clear(c[10:12])
		clear(c[28:32])
	case "welcome":
		c[1] = 0
		clear(c[36:40])
	case "request", "list":
		clear(c[1:4])
		clear(c[12:16])
	case "block":
		clear(c[2:4])
		clear(c[76:80])
	}
	return c
}

// Lengths are checked before anything is allocated for them.
func TestLengthsAreBounded(t *testing.T) {
	chain := testChain("a", 2)
	for name, read := range map[string]func(io.Reader) error{
		"pool name": func(r io.Reader) error { _, err := readHello(r); return err },
		"list":      func(r io.Reader) error { _, _, err := readList(r, maxList); return err },
		"request": func(r io.Reader) error {
			var head [requestBytes]byte
			if _, err := io.ReadFull(r, head[:]); err != nil {
				return err
			}
			_, _, err := readRequest(r, &head, nil)
			return err
		},
		"reason": func(r io.Reader) error { _, _, _, err := readWelcome(r); return err },
	} {
		msg := map[string][]byte{
			"pool name": appendHello(nil, hello{pool: testPool, block: 1}), "list": appendList(nil, statusOK, chain),
			"request": appendRequest(nil, request{op: opGet, n: 1, keys: keysOf(chain[:1])}), "reason": appendWelcome(nil, statusOK, "x", mac{}),
		}[name]
		at := map[string]int{"pool name": 10, "list": 4, "request": 4, "reason": 2}[name]
		msg[at], msg[at+1] = 0xff, 0xff
		r := bytes.NewReader(msg)
		if err := read(r); err == nil || err == io.EOF || err == io.ErrUnexpectedEOF {
			t.Errorf("%s: a length that is too large gives %v", name, err)
		}
	}
}
