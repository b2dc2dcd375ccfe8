package peer

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/kvtier/crc32c"
)

// All integers are big endian. sum is crc32c (Castagnoli) of everything before it, and
// of what the table says.
//
//	greeting   server, first      magic 8, version 2, 0 2, nonce 16, sum 4
//	hello      client, once       magic 8, version 2, pool length 2, block bytes 8, nonce 16, mac 32, sum 4 (also of the pool), pool
//	welcome    server, once       status 1, 0 1, text length 2, mac 32, sum 4 (also of the text), text
//
//	list       client             op 1, 0 3, n 4, from 4, sum 4 (also of the key), key 32
//	blocks     server             status 1, 0 3, n 4, from 4, sum 4 (also of the rest), parent 32, n times: key 32, origin 1
//
//	get        client             op 1, 0 3, n 4, 0 4, sum 4 (also of the keys), n keys of 32
//	block      server, n times    status 1, origin 1, 0 2, index 4, data sum 4, key 32, parent 32, sum 4, data
//
// Requests may follow each other before they are answered; answers come in their
// order. An answer to get holds the blocks in the order of the keys, with data for
// those that are there. A side that reads anything else closes the connection.
const (
	version = 1

	greetingBytes = 32
	helloBytes    = 72
	welcomeBytes  = 40
	requestBytes  = 16
	listBytes     = 16
	blockBytes    = 80
	keyBytes      = len(kvtier.Key{})
	entryBytes    = keyBytes + 1

	maxPool = 256     // bytes of a pool's name, as in hostmem
	maxText = 256     // bytes of a reason
	maxList = 1 << 14 // blocks in one answer: a million tokens
	maxGet  = 256     // keys in one request: 8 KiB, which always fit a socket's buffer
	// maxIndex bounds a block's place in its chain.
	maxIndex = kvtier.MaxSlots
)

var magic = [8]byte{'W', 'E', 'I', 'R', 'P', 'E', 'E', 'R'}

type nonce [16]byte

type mac [32]byte

// status is the first byte of an answer.
type status uint8

const (
	statusOK status = iota
	statusMissing
	statusVersion
	statusToken
	statusNoPool
	statusBusy
)

// err is what a status of a welcome or a list means.
func (s status) err(text string) error {
	switch s {
	case statusOK, statusMissing:
		return nil
	case statusVersion:
		return fmt.Errorf("%w: %s", ErrVersion, text)
	case statusToken:
		return fmt.Errorf("%w: %s", ErrToken, text)
	case statusNoPool:
		return fmt.Errorf("%w: %s", ErrNoPool, text)
	case statusBusy:
		return fmt.Errorf("%w: %s", ErrBusy, text)
	}
	return fmt.Errorf("%w: status %d", ErrProtocol, s)
}

const (
	opList = 1
	opGet  = 2
)

// sum covers everything that is given.
func sum(parts ...[]byte) (crc uint32) {
	for _, p := range parts {
		crc = crc32c.Update(crc, p)
	}
	return crc
}

func checkSum(what string, want uint32, parts ...[]byte) error {
	if got := sum(parts...); got != want {
		return fmt.Errorf("%w: %s has checksum %08x, not %08x", ErrProtocol, what, got, want)
	}
	return nil
}

func appendGreeting(b []byte, n nonce) []byte {
	at := len(b)
	b = append(b, magic[:]...)
	b = binary.BigEndian.AppendUint16(b, version)
	b = append(append(b, 0, 0), n[:]...)
	return binary.BigEndian.AppendUint32(b, sum(b[at:]))
}

func readGreeting(r io.Reader) (n nonce, err error) {
	var b [greetingBytes]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return n, err
	}
	if [8]byte(b[:8]) != magic {
		return n, fmt.Errorf("%w: it greets with %q", ErrVersion, b[:8])
	}
	if v := binary.BigEndian.Uint16(b[8:]); v != version {
		return n, fmt.Errorf("%w: version %d, this node speaks %d", ErrVersion, v, version)
	}
	return nonce(b[12:28]), checkSum("greeting", binary.BigEndian.Uint32(b[28:]), b[:28])
}

// hello says which pool a connection is for.
type hello struct {
	pool  string
	block int64
	nonce nonce
	mac   mac
}

func appendHello(b []byte, h hello) []byte {
	at := len(b)
	b = append(b, magic[:]...)
	b = binary.BigEndian.AppendUint16(b, version)
	b = binary.BigEndian.AppendUint16(b, uint16(len(h.pool)))
	b = binary.BigEndian.AppendUint64(b, uint64(h.block))
	b = append(append(b, h.nonce[:]...), h.mac[:]...)
	b = binary.BigEndian.AppendUint32(b, sum(b[at:], []byte(h.pool)))
	return append(b, h.pool...)
}

func readHello(r io.Reader) (h hello, err error) {
	var b [helloBytes]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return h, err
	}
	n := int(binary.BigEndian.Uint16(b[10:]))
	h = hello{block: int64(binary.BigEndian.Uint64(b[12:])), nonce: nonce(b[20:36]), mac: mac(b[36:68])}
	switch {
	case [8]byte(b[:8]) != magic:
		return h, fmt.Errorf("%w: it says %q", ErrVersion, b[:8])
	case binary.BigEndian.Uint16(b[8:]) != version:
		return h, fmt.Errorf("%w: version %d, this node speaks %d", ErrVersion, binary.BigEndian.Uint16(b[8:]), version)
	case n == 0 || n > maxPool:
		return h, fmt.Errorf("%w: pool name of %d bytes, want 1 to %d", ErrProtocol, n, maxPool)
	case h.block <= 0 || h.block > 1<<40:
		return h, fmt.Errorf("%w: blocks of %d bytes", ErrProtocol, h.block)
	}
	pool := make([]byte, n)
	if _, err := io.ReadFull(r, pool); err != nil {
		return h, err
	}
	h.pool = string(pool)
	return h, checkSum("hello", binary.BigEndian.Uint32(b[68:]), b[:68], pool)
}

func appendWelcome(b []byte, s status, text string, m mac) []byte {
	text = text[:min(len(text), maxText)]
	at := len(b)
	b = append(b, byte(s), 0)
	b = binary.BigEndian.AppendUint16(b, uint16(len(text)))
	b = append(b, m[:]...)
	b = binary.BigEndian.AppendUint32(b, sum(b[at:], []byte(text)))
	return append(b, text...)
}

func readWelcome(r io.Reader) (s status, text string, m mac, err error) {
	var b [welcomeBytes]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return 0, "", m, err
	}
	n := int(binary.BigEndian.Uint16(b[2:]))
	if n > maxText {
		return 0, "", m, fmt.Errorf("%w: reason of %d bytes, at most %d", ErrProtocol, n, maxText)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return 0, "", m, err
	}
	return status(b[0]), string(body), mac(b[4:36]), checkSum("welcome", binary.BigEndian.Uint32(b[36:]), b[:36], body)
}
