package jsrun

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// zstdMagic begins every frame of zstd (RFC 8878, section 3.1.1).
var zstdMagic = []byte{0x28, 0xB5, 0x2F, 0xFD}

// pack compresses a body where that saves a sixteenth or more: images are
// compressed already, and unpacking them would cost for nothing.
func (p *Payloads) pack(body []byte) []byte {
	packed := p.enc.EncodeAll(body, nil)
	// A body that looks like a frame of zstd must be one, or it could not be told
	// from a compressed body.
	if len(packed) > len(body)-len(body)/16 && !startsAsZstd(body) {
		return body
	}
	return packed
}

func startsAsZstd(b []byte) bool {
	return len(b) >= len(zstdMagic) && string(b[:len(zstdMagic)]) == string(zstdMagic)
}

// find returns a stored object that is whole, or nil.
func (p *Payloads) find(ctx context.Context, digest string) (*jetstream.ObjectInfo, error) {
	info, err := p.bucket.GetInfo(ctx, digest)
	if errors.Is(err, jetstream.ErrObjectNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("jsrun: looking for payload %s: %w", digest, err)
	}
	if p.known.has(digest, info.NUID) {
		return info, nil
	}
	whole, err := p.whole(ctx, info)
	if err != nil || !whole {
		return nil, err
	}
	p.known.add(digest, info.NUID)
	return info, nil
}

// lasts reports whether at least half of the bucket's age is left to an object.
func (p *Payloads) lasts(info *jetstream.ObjectInfo) bool {
	return p.age == 0 || time.Since(info.ModTime) < p.age/2
}

// Keep makes sure that an object which was stored earlier, by whomever, is there
// and stays for at least half of the bucket's age. found is false when it is not
// there.
func (p *Payloads) Keep(ctx context.Context, digest string) (found bool, err error) {
	info, err := p.find(ctx, digest)
	if info == nil || err != nil {
		return false, err
	}
	if p.lasts(info) {
		return true, nil
	}
	if info.Size > uint64(p.max)+1<<16 {
		return false, nil // no body that may be read has this size
	}
	packed, err := p.bucket.GetBytes(ctx, digest)
	if errors.Is(err, jetstream.ErrObjectNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("jsrun: reading payload %s: %w", digest, err)
	}
	return true, p.store(ctx, digest, packed)
}

// maxKnownObjects bounds what is remembered of objects; each costs about 200 bytes.
const maxKnownObjects = 8192

// knownObjects remembers which objects were seen whole, by the id of their chunks:
// counting chunks costs the server more than reading what announces an object, and
// agents send the same screenshots at every turn. An object that was removed, or
// stored anew, has no or other chunks.
type knownObjects struct {
	mu    sync.Mutex
	ids   map[string]string
	order []string
	next  int
}

func (k *knownObjects) has(digest, id string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return id != "" && k.ids[digest] == id
}

// drop forgets an object that turned out not to be whole.
func (k *knownObjects) drop(digest string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, ok := k.ids[digest]; ok {
		k.ids[digest] = ""
	}
}

func (k *knownObjects) add(digest, id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ids == nil {
		k.ids = make(map[string]string)
	}
	if _, ok := k.ids[digest]; !ok {
		if len(k.order) < maxKnownObjects {
			k.order = append(k.order, digest)
		} else {
			delete(k.ids, k.order[k.next])
			k.order[k.next] = digest
			k.next = (k.next + 1) % maxKnownObjects
		}
	}
	k.ids[digest] = id
}
