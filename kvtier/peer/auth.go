package peer

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
)

func newNonce() (n nonce) {
	_, _ = rand.Read(n[:]) // never fails: crypto/rand aborts the program instead
	return n
}

// prove is what one side sends to show that it has the token: HMAC-SHA-256 over what
// both sides said, so that it is good for this connection and pool only and does not
// give the token away. Without a token it is the one of the empty token. who tells the
// two sides apart, so that neither can send back what the other one sent.
func prove(token, who string, server nonce, h *hello, s status) (m mac) {
	f := hmac.New(sha256.New, []byte(token))
	f.Write([]byte("weir peer v1\x00" + who + "\x00"))
	f.Write(server[:])
	f.Write(h.nonce[:])
	f.Write(binary.BigEndian.AppendUint64(nil, uint64(h.block)))
	f.Write([]byte{byte(s)})
	f.Write([]byte(h.pool))
	f.Sum(m[:0])
	return m
}

const (
	fromClient = "client"
	fromServer = "server"
)

// same compares in a time that does not depend on where they differ.
func same(a, b mac) bool { return hmac.Equal(a[:], b[:]) }
