package telemetry

import "time"

// Bounds of spans that are open in one service. A span that is not ended by its
// message, such as that of a turn published twice, ends when it is too old.
const (
	ledgerMax = 4096
	ledgerAge = 15 * time.Minute // turns have 10 min by default
)

// ledger keeps what is open by key, in order of arrival. It is not safe for
// concurrent use.
type ledger[T any] struct {
	byKey map[string]*ledgerEntry[T]
	order []*ledgerEntry[T] // removed ones stay until they reach the front
	drop  func(T)           // called for what is too old or one too many
}

type ledgerEntry[T any] struct {
	key  string
	v    T
	at   time.Time
	gone bool
}

func newLedger[T any](drop func(T)) *ledger[T] {
	return &ledger[T]{byKey: map[string]*ledgerEntry[T]{}, drop: drop}
}

func (l *ledger[T]) get(key string) (T, bool) {
	if e := l.byKey[key]; e != nil {
		return e.v, true
	}
	var zero T
	return zero, false
}

// add keeps v under key; an older value of the key is dropped.
func (l *ledger[T]) add(key string, v T, now time.Time) {
	if old, ok := l.take(key); ok {
		l.drop(old)
	}
	for len(l.order) > 0 {
		e := l.order[0]
		if !e.gone && len(l.byKey) < ledgerMax && now.Sub(e.at) < ledgerAge {
			break
		}
		l.order[0] = nil
		l.order = l.order[1:]
		if !e.gone {
			delete(l.byKey, e.key)
			l.drop(e.v)
		}
	}
	if len(l.order) > 2*ledgerMax { // one old entry in front of many that are gone
		kept := make([]*ledgerEntry[T], 0, len(l.byKey)+1)
		for _, e := range l.order {
			if !e.gone {
				kept = append(kept, e)
			}
		}
		l.order = kept
	}
	e := &ledgerEntry[T]{key: key, v: v, at: now}
	l.byKey[key] = e
	l.order = append(l.order, e)
}

// take removes and returns the value of a key.
func (l *ledger[T]) take(key string) (T, bool) {
	e := l.byKey[key]
	if e == nil {
		var zero T
		return zero, false
	}
	delete(l.byKey, key)
	e.gone = true
	v := e.v
	var zero T
	e.v = zero
	return v, true
}

func (l *ledger[T]) len() int { return len(l.byKey) }
