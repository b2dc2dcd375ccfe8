// Package hostmem is one host's KV memory: files on tmpfs (or a plain disk) that
// all executors of the host map, and the daemon that gives out their slots.
//
// Read layout.go first (what lies where in a pool's file), then client_read.go
// and client_write.go (what executors do), then daemon.go (who may reserve, and
// who is evicted).
//
//	DIR/daemon.lock      held by the one daemon
//	DIR/tier.sock        reserve, notices (wire.go)
//	DIR/writers/<id>     held by a client while it lives: its release is the only proof of death
//	DIR/reserve.mem      budget that no pool has taken yet, allocated, so a full tmpfs shows at start
//	DIR/pool-<hash>.kv   one pool: header, writer table, slot headers, index, data
//
// # A block's life
//
// A client reserves slots from the daemon, copies KV into one, and seals it: it
// writes key and checksum into the slot's header, publishes the header with one
// compare-and-swap, and enters the key into the shared index. From then on every
// client finds and leases it without the daemon. The daemon hears of it by a
// notice, or, if that is lost, by looking at the headers; the headers are the
// truth, and the daemon's own table (kvtier.Slots) is rebuilt from them.
//
//	free ──reserve (daemon)──► reserved ──seal (writer)──► sealed
//	 ▲                            │                         │
//	 └───── abandon, or ──────────┘                      evicting ──► sealed again if leased
//	        writer's lock free                              │
//	 ◄──────────────────────────────────────────────────────┘
//
// # Generations and leases
//
// A slot's state word holds its generation, which grows with each reservation and
// never falls, also across restarts of the daemon. A reader that copied from a
// slot checks the word again: if it is unchanged, the bytes are those sealed.
//
// A lease is one bit per client in the slot's header. The reader sets its bit,
// then checks the state word; the daemon sets the state to evicting, then checks
// the bits. Both orders are sequentially consistent, so one of them sees the
// other. Bits cannot leak: when a client's lock is free, the daemon clears the
// client's bit everywhere. At most 64 clients per pool.
package hostmem
