// Package nodes shows what happens between tier nodes: a session that goes on at
// another node finds its context there, because its blocks come from the node that
// has them; a prefix that many sessions begin with comes to every node that needs
// it; and nodes may end at any time.
//
// Read nodes_test.go; session.go sends the turns.
package nodes
