// Package hostmem is one host's KV memory: files on tmpfs (or a plain disk) that
// all executors of the host map, and the daemon that gives out their slots.
//
// Read layout.go first (what lies where in a pool's file), then client_read.go
// and client_write.go (what executors do), then daemon.go (who may reserve, and
// who is evicted).
//
//	DIR/daemon.lock      held by the one daemon; the number of its life (life.go)
//	DIR/tier.sock        reserve, notices (wire.go)
//	DIR/writers/<id>     held by a client while it lives: its release is the only proof of death
//	DIR/reserve.mem      budget that no pool has taken yet, allocated, so a full tmpfs shows at start
//	DIR/pool-<hash>.kv   one pool: header, writer table, leases, slot headers, index, data
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
// A lease is one bit per slot and client. The reader sets its bit,
// then checks the state word; the daemon sets the state to evicting, then checks
// the bits. Both orders are sequentially consistent, so one of them sees the
// other. Bits cannot leak: when a client's lock is free, the daemon clears the
// client's bit everywhere. At most 64 clients per pool.
//
// # Size classes
//
// A pool is a size class: all its blocks are equally long, because engine, model and
// KV format decide the length. Several pools share the one budget, each with a file
// of its own, so slots never fragment and a slot's place follows from its number.
// The first client of a pool makes it, as large as Config.PoolBytes allows. Within a
// pool memory moves from block to block by eviction; between pools it moves as a
// whole: a pool whose last client has ended gives its file up when another one needs
// the room, and not before, so that a model that is started again finds its blocks.
// The room that no pool has taken is allocated too (reserve.mem). At any time the
// files' lengths add up to the budget.
//
// # What the bytes are checked by
//
// A block has a crc32c of its data, made while it was copied in, and its header one
// of what describes it and of its generation. Copy and Verify compare the former and
// the key; whatever is damaged is reported, looked at by the daemon, and removed.
// Reading in place with Data and Valid alone tells that the slot still holds the
// block, not that no bit of it flipped.
//
// Blocks from 256 KiB on are copied past the processor's caches (copysum_amd64.s), and
// from 1 MiB on begin at a huge page, where the mount has them (HugePages).
//
// # Bounded time
//
// The daemon's loop does nothing that takes longer with more blocks, apart from
// finding the leases of a client that ended and counting leases for Stats (some
// milliseconds per million slots). Erase, Clear and Snapshot go in steps, a start
// looks at every slot once (two seconds per million), while clients read on.
package hostmem
