package hostmem

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// The socket carries JSON lines of bounded length in both directions. One struct
// serves all of them; the table says which fields an op uses.
//
//	client → daemon
//	  hello     proto writer nonce pool block held partial existing   first, once
//	  reserve   id n extra wait_ms                           answered by slots or error
//	  sealed    slots                                        notice
//	  abandon   slots                                        notice
//	  poke                                                   leases were released while others wait
//	  corrupt   slots                                        checksum differs; the daemon checks and removes
//	  why       id keys                                      one key; answered by gone
//	  erase     id keys                                      answered by erased
//	  first     id keys                                      answered by first
//	  disk      id keys                                      answered by places
//	  trail     id keys n                                    one key; answered by trail
//	  bad       keys                                         blocks on disk whose bytes are wrong; the daemon checks
//	daemon → client
//	  welcome   file arena no cache disk                     answers hello
//	  slots     id slots                                     answers reserve
//	  error     id code text
//	  gone      id n at_ns code                              n is 0 for a block that is there; code is the rule
//	  first     id n                                         which of the keys goes first, from 0
//	  erased    id n extra                                   blocks removed, and left because they are read
//	  places    id file places                               file is the disk's folder; empty without a disk
//	  trail     id keys                                      the keys before that one, last first, as far as known
//	  trim                                                   others wait: abandon what is not in use
type message struct {
	Op      string    `json:"op"`
	ID      uint64    `json:"id,omitempty"`
	Proto   int       `json:"proto,omitempty"`
	Writer  string    `json:"writer,omitempty"`
	Nonce   string    `json:"nonce,omitempty"`
	Pool    string    `json:"pool,omitempty"`
	Block   int64     `json:"block,omitempty"`
	Held    []slotRef `json:"held,omitempty"`
	Partial bool      `json:"partial,omitempty"` // held lists only some
	// Existing: do not make the pool.
	Existing bool      `json:"existing,omitempty"`
	N        int       `json:"n,omitempty"`
	Extra    int       `json:"extra,omitempty"` // as many more as are free
	WaitMS   int64     `json:"wait_ms,omitempty"`
	Slots    []slotRef `json:"slots,omitempty"`
	File     string    `json:"file,omitempty"`
	Arena    string    `json:"arena,omitempty"`
	No       int       `json:"no,omitempty"`
	Cache    int       `json:"cache,omitempty"` // most unused slots a client should hold
	Keys     []string  `json:"keys,omitempty"`  // hex
	Places   []place   `json:"places,omitempty"`
	Disk     bool      `json:"disk,omitempty"` // there is one below the memory
	AtNS     int64     `json:"at_ns,omitempty"`
	Code     string    `json:"code,omitempty"`
	Text     string    `json:"text,omitempty"`
}

// slotRef is a slot number and its generation.
type slotRef [2]uint64

// place is where one of the keys asked for lies on disk.
type place struct {
	Key int    `json:"k"` // in the order of the question
	Seg string `json:"s"`
	At  int64  `json:"i"`
	Gen uint64 `json:"g"`
}

const (
	protoVersion = 3
	maxLine      = 64 << 10
	maxRefs      = 1024 // per message: at most 41 KiB of text
	ioTimeout    = 2 * time.Second

	opHello   = "hello"
	opReserve = "reserve"
	opSealed  = "sealed"
	opAbandon = "abandon"
	opPoke    = "poke"
	opCorrupt = "corrupt"
	opWhy     = "why"
	opErase   = "erase"
	opFirst   = "first"
	opDisk    = "disk"
	opTrail   = "trail"
	opBad     = "bad"
	opWelcome = "welcome"
	opSlots   = "slots"
	opError   = "error"
	opTrim    = "trim"
	opGone    = "gone"
	opErased  = "erased"
	opPlaces  = "places"

	codeFull    = "full"
	codeBusy    = "busy"
	codeBudget  = "budget"
	codeRefused = "refused"

	socketName = "tier.sock"
)

var errLine = errors.New("hostmem: bad message on the socket")

// readMessage reads one line. A line that is too long or no JSON is errLine: the
// peer is then cut off.
func readMessage(r *bufio.Reader) (message, error) {
	line, err := r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return message{}, fmt.Errorf("%w: longer than %d bytes", errLine, maxLine)
	}
	if err != nil {
		return message{}, err
	}
	var m message
	if err := json.Unmarshal(line, &m); err != nil {
		return message{}, fmt.Errorf("%w: %w", errLine, err)
	}
	if len(m.Slots) > maxRefs || len(m.Held) > maxRefs {
		return message{}, fmt.Errorf("%w: %d slots, at most %d", errLine, max(len(m.Slots), len(m.Held)), maxRefs)
	}
	return m, nil
}

// encode returns the line of a message.
func encode(m message) []byte {
	line, err := json.Marshal(m)
	if err != nil {
		panic("hostmem: message without JSON form: " + err.Error()) // only strings and numbers: cannot happen
	}
	return append(line, '\n')
}
