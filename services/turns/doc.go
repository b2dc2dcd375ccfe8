// Package turns is the caller's side of the turn path: it publishes a turn and
// reads its answer, so that the caller sees every token once, in order and
// unchanged, whichever process or connection fails in between.
//
// Read client.go first (what a caller does), then answer.go (the rules by which
// frames and results become events), then stream.go (where missing frames and
// results are fetched from).
//
//	Publish --agent.<t>.<s>.turn--> AGENT
//	Next    <--out.<t>.<s>.<turn>--- frames, live
//	        <--result.<t>.<s>.<turn> the whole answer, live
//	        <==direct get==========  OUT and RESULT: after a gap, a reconnect, silence
package turns
