// Package tierchaos abuses one host's KV memory with real processes: clients that
// store and read at random, kill -9 of clients and of the daemon, SIGSTOP, a memory
// that is far too small, and flipped bits. Every block's content follows from its
// key and tenant, so that each byte that is served can be checked.
//
// Read chaos.go (the run), then client.go (what a client process does), then
// flips.go. The program that calls Run must call Child first thing in main.
package tierchaos
