// Package retain decides which waiting branch keeps its blocks and which gives
// them up: how soon each is expected back, and how far a tenant's words about it
// are believed.
//
// Read score.go first (the order), then hist.go (its formula), estimate.go (how
// waits are learned), credit.go (who is believed) and keeper.go (who tells it to
// the tables).
//
//	BRANCH ──► Keeper ──► Estimator: tool, session, time waited ──► score per branch
//	              │                                                      │
//	              ├──► Shadow (what LRU would hold) ──► Credit ──► level │
//	              ▼                                                      ▼
//	           kvtier.Slots.Hold                              kvtier.Slots.Rank
//
// The package is pure: it is told the time in Unix nanoseconds.
package retain
