// Package admit decides which sessions a pool serves, and whose turn comes first.
//
// A session's context stays in memory between its turns. When the contexts of all
// sessions together exceed what memory holds, every eviction policy fails alike: each
// turn finds its context gone and computes it again, which delays the others until
// theirs is gone, too. So sessions that would not fit wait before their first turn
// (book.go, forecast.go), and once admitted stay until they end or are idle for long.
// fair.go orders turns: tenants and sessions that were served little come first, within
// bounds, so that neither new nor old sessions starve.
package admit
