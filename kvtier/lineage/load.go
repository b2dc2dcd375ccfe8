package lineage

// Load returns the number of sessions, and of tokens of their branches, that are
// remembered.
func (l *Lineage) Load() (sessions, tokens int) { return len(l.sessions), l.tokens }
