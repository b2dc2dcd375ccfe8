// Package turns is the client of weir for Go programs, and the caller's side of the
// turn path: it publishes a turn and reads its answer, so that the caller sees every
// token once, in order and unchanged, whichever process or connection fails in
// between. It needs a connection to NATS and nothing else.
//
//	nc, err := nats.Connect(url, nats.MaxReconnects(-1))
//	c, err := turns.New(nc, turns.Options{})
//	s, err := c.Publish(ctx, turns.Request{Session: "s1", Turn: &schemas.Turn{…}})
//	res, err := turns.Collect(ctx, s, func(e *turns.Event) error { fmt.Print(e.Text); return nil })
//
// A reader that lost its connection, or its process, goes on with Resume: it names
// the turn and the Position behind the last Event that it has. Client.Event says what
// happens between turns: a tool is waited for, a branch ended. Client.Cancel stops a
// turn. The examples below run as they stand.
//
// Images of data: URLs in messages are stored once and replaced by references, see
// MediaRef.
//
// Read client.go first (what a caller does), then answer.go (the rules by which
// frames and results become events), then stream.go (where missing frames and
// results are fetched from), and media.go (how images leave the messages).
//
//	Publish --agent.<t>.<s>.turn--> AGENT
//	Next    <--out.<t>.<s>.<turn>--- frames, live
//	        <--result.<t>.<s>.<turn> the whole answer, live
//	        <==direct get==========  OUT and RESULT: after a gap, a reconnect, silence
package turns
