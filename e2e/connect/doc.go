// Package connect measures what it brings to connect an agent to weir more closely:
// by nothing but a base URL, behind a proxy that strips headers and writes JSON
// anew; by a session header; by events; by turns over NATS that send only what is
// new. The agent is the program of js/nothing.mjs; the others are the same program
// with the lines changed that the connection needs.
//
// Read js/nothing.mjs, then connect.go.
package connect
