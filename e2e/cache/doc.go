// Package cache shows that the second turn of a session finds what the first one
// computed, generated tokens included, wherever it runs and however it is sent.
//
// Read scenario.go (what is run), then send.go (the two ways to send a turn).
package cache
