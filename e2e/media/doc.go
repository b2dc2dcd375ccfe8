// Package media drives a computer-use agent over HTTP against a test engine that takes
// images, and measures how images are stored and whether any two share a KV block.
//
// The engine (--engine null --null-vision) is a fake: it sees nothing, but its blocks
// and answers depend on the images before them.
//
// Read session.go (the agent), then pairs.go (which prompts may share what), then run.go.
package media
