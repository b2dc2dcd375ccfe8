// Package branch tells from plain traffic which line of context of a session a
// request belongs to. Agents re-send their whole history with every request and
// do not say that they forked, started a sub-agent or compacted their context;
// the content says it.
//
// A Forest holds the contexts of one session's branches as a radix tree over
// message digests. Place compares a request with it and decides; it changes no
// context. The caller reports what became of the request with Set and Append.
//
// Read kind.go for the terms, place.go for the rules in the order in which they
// are tried, and tree.go for the index. docs/inference.md says how well the rules
// do on recorded traffic.
//
// What a rule may read is what a live service knows when the request arrives:
// contents and sizes, whether a branch has a turn in progress, and the past. No
// rule looks ahead, so some guesses turn out wrong later. A wrong guess costs KV
// that is computed again, never a wrong answer: the caller compares tokens.
package branch
