// Package disk keeps KV blocks on a local disk below host memory: what memory must
// give up soon is written here, and read back instead of computed again.
//
// Read layout.go first (what lies where in a file), then store.go and put.go (the one
// process that writes), then reader.go (the processes that read).
//
//	DIR/disk.lock            held by the one Store
//	DIR/seg-<pool>-<n>.kvd   one segment: header, slot headers, data, allocated as a whole
//
// A pool (model, engine and KV format with one block size) has segments of its own, so
// blocks of two pools never lie in one file. All segments together never have more bytes
// than was configured. When they are full, the pool's own table (kvtier.Slots) says which
// block gives way; a segment whose blocks were all used longer ago than that one goes as
// a whole to the pool that needs it.
//
// It is a cache. Nothing is synced: after a loss of power a block may be torn, and its
// checksum says so. After kill -9 everything that was written is there. A folder that
// cannot be written, or is full, costs the disk and nothing else: see Stats.Off.
package disk
