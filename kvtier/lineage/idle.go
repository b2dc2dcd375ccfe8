package lineage

import "github.com/weir-dev/weir/schemas"

// sweepParts is how often, within the time that idle sessions are kept, they are
// looked for: one may stay that much longer.
const sweepParts = 8

// sweep forgets sessions that had no turn for longer than KeepNS. What is said in them
// must not stay for ever only because there is room.
func (l *Lineage) sweep(now schemas.Time) {
	if l.cfg.KeepNS <= 0 || now < l.sweepAt {
		return
	}
	l.sweepAt = now + schemas.Time(max(l.cfg.KeepNS/sweepParts, 1))
	for _, s := range l.sessions {
		if s.pending > 0 || s.owed > 0 || int64(now-s.used) < l.cfg.KeepNS {
			continue
		}
		l.drop(s)
		l.counts.Forgotten++
		l.forgot, l.stale = true, true
	}
}

func (l *Lineage) nextSweep() schemas.Time {
	if l.cfg.KeepNS <= 0 || len(l.sessions) == 0 {
		return schemas.Never
	}
	return l.sweepAt
}
