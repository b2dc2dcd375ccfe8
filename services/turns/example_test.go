package turns_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/turns"
	"github.com/weir-dev/weir/streams"
	"github.com/weir-dev/weir/streams/jsrun"
)

// server is NATS with weir's streams, and something that answers turns. A program
// connects to a server where weir runs instead.
func server() (nc *nats.Conn, stop func()) {
	dir, err := os.MkdirTemp("", "turns-example-")
	check(err)
	topo := streams.Topology(streams.Options{})
	s, err := jsrun.Embedded(jsrun.EmbeddedOptions{Dir: dir, Topology: topo})
	check(err)
	nc, err = jsrun.Connect(jsrun.ConnectOptions{Server: s, Name: "example"})
	check(err)
	js, err := jetstream.New(nc)
	check(err)
	check(jsrun.Provision(context.Background(), js, topo))
	_, err = nc.Subscribe("agent.*.*.turn", func(m *nats.Msg) { fakeAnswer(nc, m) })
	check(err)
	return nc, func() {
		nc.Close()
		s.Shutdown()
		s.WaitForShutdown()
		check(os.RemoveAll(dir))
	}
}

// fakeAnswer plays the executor: two frames and the result.
func fakeAnswer(nc *nats.Conn, m *nats.Msg) {
	turn := new(schemas.Turn)
	check(schemas.Decode(m.Data, turn))
	sub, err := schemas.ParseSubject(m.Subject)
	check(err)
	tenant, session, id := sub.Get("tenant"), sub.Get("session"), turn.Weir.Turn
	for _, f := range []schemas.Frame{
		{First: 0, Tokens: schemas.Tokens{11, 12}, Text: "A weir "},
		{First: 2, Tokens: schemas.Tokens{13, 14}, Text: "holds water.", TextAt: 7},
	} {
		f.Header, f.Attempt = schemas.H(), 1
		b, err := schemas.Encode(&f)
		check(err)
		check(nc.Publish(schemas.OutSubject(tenant, session, id), b))
	}
	b, err := schemas.Encode(&schemas.Result{
		Header: schemas.H(), Tenant: tenant, Session: session, Turn: id, Job: schemas.JobID(tenant, session, id), Attempt: 1,
		Status: schemas.StatusOK, Tokens: schemas.Tokens{11, 12, 13, 14}, Text: "A weir holds water.", Finish: "stop",
	})
	check(err)
	check(nc.Publish(schemas.ResultSubject(tenant, session, id), b))
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// Publish a turn and read its answer as it comes.
func ExampleClient_Publish() {
	nc, stop := server()
	defer stop()
	c, err := turns.New(nc, turns.Options{})
	check(err)
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	turn := &schemas.Turn{
		Weir: schemas.TurnMeta{Turn: "t1"}, // published twice it is one turn
		Body: schemas.Body{Messages: []json.RawMessage{json.RawMessage(`{"role":"user","content":"What is a weir?"}`)}},
	}
	s, err := c.Publish(ctx, turns.Request{Session: "s1", Turn: turn})
	check(err)
	defer s.Close()
	res, err := turns.Collect(ctx, s, func(e *turns.Event) error {
		fmt.Printf("%q\n", e.Text)
		return nil
	})
	check(err)
	fmt.Println(res.Status, res.Finish, len(res.Tokens))
	// Output:
	// "A weir "
	// "holds water."
	// ok stop 4
}

// Go on reading where an earlier process, or another machine, left off.
func ExampleClient_Resume() {
	nc, stop := server()
	defer stop()
	c, err := turns.New(nc, turns.Options{})
	check(err)
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	turn := &schemas.Turn{Weir: schemas.TurnMeta{Turn: "t1"}, Body: schemas.Body{Prompt: json.RawMessage(`"A weir"`)}}
	s, err := c.Publish(ctx, turns.Request{Session: "s1", Turn: turn})
	check(err)
	first, err := s.Next(ctx)
	check(err)
	at := first.Position() // keep this with the turn's id
	s.Close()

	again, err := c.Resume(ctx, turns.Ref{Tenant: "default", Session: "s1", Turn: "t1"}, at)
	check(err)
	defer again.Close()
	rest := ""
	_, err = turns.Collect(ctx, again, func(e *turns.Event) error {
		rest += e.Text
		return nil
	})
	check(err)
	fmt.Printf("%q then %q\n", first.Text, rest)
	// Output:
	// "A weir " then "holds water."
}

// Say that a tool is waited for, so that the context is kept for its answer.
func ExampleClient_Event() {
	nc, stop := server()
	defer stop()
	c, err := turns.New(nc, turns.Options{})
	check(err)
	defer c.Close()
	seq, err := c.Event(context.Background(), turns.EventRequest{
		Session: "s1", Kind: schemas.EventToolWait, Tool: "pytest", Expected: 20 * time.Second,
	})
	check(err)
	fmt.Println("stored as message", seq)
	// Output:
	// stored as message 1
}
