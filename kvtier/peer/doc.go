// Package peer moves KV blocks between the memories of two nodes over TCP.
//
// Read wire.go first (what is on the wire), then serve.go (a request at the node that
// holds the blocks), then fetch.go (a transfer at the node that lacks them).
//
//	executor ── Client ──TCP, some streams──► Server ── tier
//	   │   reads into reserved slots    writes out of leased slots │
//	   ▼                                                           ▼
//	local arena                                              remote arena
//
// Bytes go from the sender's mapped memory to the socket, and from the socket into the
// slot in which they stay; nothing is copied in between. With each block travels the
// checksum that its first writer made. A block is sealed only if its bytes have that
// checksum, so a block that came late, torn or changed is a miss and never an answer.
//
// Everything is bounded: connections and pools of a server, the time for which it
// leases a block to a receiver that does not read, connections, streams, bytes asked
// for ahead and the time of a client, and what it remembers of peers that fail.
//
// Both ends prove that they know a token, if one is set, without sending it. The bytes
// themselves are not encrypted: the network between nodes must be a private one.
package peer
