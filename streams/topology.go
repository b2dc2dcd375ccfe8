package streams

import (
	"fmt"
	"strings"
	"time"

	"github.com/weir-dev/weir/schemas"
)

// Store is where a stream keeps its messages.
type Store uint8

// The stores.
const (
	File   Store = iota // survives a restart of NATS
	Memory              // lost with NATS; whatever is here can be made again
)

// Retention says when a message leaves a stream besides its limits.
type Retention uint8

// The retentions.
const (
	Limits    Retention = iota // by age and size only
	WorkQueue                  // when its one consumer acknowledged it
)

// Discard says what happens to a publish that would exceed a limit.
type Discard uint8

// The two ways to discard.
const (
	DiscardNew Discard = iota // refuse it: the publisher must wait, nothing acknowledged is lost
	DiscardOld                // drop the oldest message
)

// Transform rewrites the subject of what is stored. Both are NATS mappings.
type Transform struct {
	Source      string
	Destination string
}

// Stream is one JetStream stream as plain data.
type Stream struct {
	Name     string
	Subjects []string // that publishers use
	// Stored are the subjects as consumers see them, when Transform changes them.
	Stored    []string
	Transform *Transform

	Store     Store
	Retention Retention
	Discard   Discard

	MaxAge time.Duration // 0 is no limit
	// AgeFixed: MaxAge was chosen, so a stream that exists gets it too. Otherwise
	// that stream keeps the age that it has.
	AgeFixed          bool
	MaxBytes          int64 // stream size in bytes, always limited
	MaxMsgs           int64 // -1 is no limit
	MaxMsgsPerSubject int64 // -1 is no limit, 1 keeps the last one
	MaxMsgSize        int32 // bytes, headers included
	// Duplicates is the window in which a message id is stored once only. An id
	// costs the server about 128 bytes of memory for that long.
	Duplicates   time.Duration
	MaxConsumers int
	Replicas     int
	AllowDirect  bool // last message of a subject may be read without a consumer
	AllowMsgTTL  bool // single messages may end early
}

// Options sizes the topology. The zero value fits a laptop.
type Options struct {
	// Replicas of the file streams, 1 by default; memory streams always have 1.
	Replicas int
	// Scale multiplies every MaxBytes, 1 by default.
	Scale float64
	// MaxBytes overrides single streams, by stream name, after Scale.
	MaxBytes map[string]int64
	// MaxAge overrides how long single streams keep messages, by stream name. It is
	// applied to streams that exist too.
	MaxAge map[string]time.Duration
	// MaxConsumers of every stream, 5,000 by default. Servers since 2.15 refuse
	// the 1,001st consumer of a stream that does not say how many it wants.
	MaxConsumers int
}

// minBytes is the smallest MaxBytes that a stream accepts: one message of the
// largest size must fit.
const minBytes = 2 << 20

// Find returns the stream of that name.
func Find(topo []Stream, name string) (Stream, bool) {
	for _, s := range topo {
		if s.Name == name {
			return s, true
		}
	}
	return Stream{}, false
}

// ForSubject returns the stream that keeps what is published on a subject.
func ForSubject(topo []Stream, subject string) (Stream, bool) {
	for _, s := range topo {
		for _, p := range s.Subjects {
			if Matches(p, subject) {
				return s, true
			}
		}
	}
	return Stream{}, false
}

// Totals returns the bytes that the streams may take on disk and in memory,
// replicas of one server counted once.
func Totals(topo []Stream) (file, memory int64) {
	for _, s := range topo {
		if s.Store == File {
			file += s.MaxBytes
		} else {
			memory += s.MaxBytes
		}
	}
	return file, memory
}

// Check reports the first contradiction in a topology: a name twice, a stream
// without bounds, two streams that take the same subject.
func Check(topo []Stream) error {
	names := map[string]bool{}
	for i, s := range topo {
		if names[s.Name] {
			return fmt.Errorf("%w: two streams are called %s", ErrTopology, s.Name)
		}
		names[s.Name] = true
		if err := s.check(); err != nil {
			return err
		}
		for _, o := range topo[:i] {
			if a, b, yes := overlap(s, o); yes {
				return fmt.Errorf("%w: %s takes %q and %s takes %q, which overlap", ErrTopology, s.Name, a, o.Name, b)
			}
		}
	}
	return nil
}

func (s *Stream) check() error {
	switch {
	case len(s.Subjects) == 0:
		return fmt.Errorf("%w: stream %s has no subjects", ErrTopology, s.Name)
	case s.MaxBytes < minBytes:
		return fmt.Errorf("%w: stream %s: max_bytes is %d, at least %d is needed for one large message",
			ErrTopology, s.Name, s.MaxBytes, minBytes)
	case s.MaxConsumers < 1 || s.MaxMsgSize < 1 || s.Replicas < 1:
		return fmt.Errorf("%w: stream %s: max_consumers %d, max_msg_size %d and replicas %d must be positive",
			ErrTopology, s.Name, s.MaxConsumers, s.MaxMsgSize, s.Replicas)
	case s.MaxAge > 0 && s.Duplicates > s.MaxAge:
		return fmt.Errorf("%w: stream %s: the duplicate window %s exceeds max_age %s", ErrTopology, s.Name, s.Duplicates, s.MaxAge)
	}
	return nil
}

func overlap(s, o Stream) (a, b string, yes bool) {
	for _, a = range append(append([]string(nil), s.Subjects...), s.Stored...) {
		for _, b = range append(append([]string(nil), o.Subjects...), o.Stored...) {
			if Overlaps(a, b) {
				return a, b, true
			}
		}
	}
	return "", "", false
}

// Matches reports whether a subject without wildcards matches a pattern with
// NATS wildcards (* is one token, > is one or more at the end).
func Matches(pattern, subject string) bool {
	for {
		p, prest, pmore := strings.Cut(pattern, ".")
		s, srest, smore := strings.Cut(subject, ".")
		if p == ">" {
			return s != ""
		}
		if p != "*" && p != s || s == "" {
			return false
		}
		if !pmore || !smore {
			return pmore == smore
		}
		pattern, subject = prest, srest
	}
}

// Overlaps reports whether some subject matches both patterns.
func Overlaps(a, b string) bool {
	for {
		x, arest, amore := strings.Cut(a, ".")
		y, brest, bmore := strings.Cut(b, ".")
		if x == ">" || y == ">" {
			return true
		}
		if x != y && x != "*" && y != "*" {
			return false
		}
		if !amore || !bmore {
			return amore == bmore
		}
		a, b = arest, brest
	}
}

// Pattern is the subject pattern of all messages of one root, "done.*.*" for done.
func Pattern(r schemas.Root) string {
	return string(r) + strings.Repeat(".*", len(schemas.Layout(r)))
}
