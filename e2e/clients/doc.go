// Package clients shows that programs which know nothing of weir work with it
// unchanged: the official openai npm package and the nats command line.
//
// Read node.go (how the npm package gets here), npm/client.mjs (what it does) and
// natscli.go; the tests say what must come out.
package clients
