//go:build ignore

// Command turn publishes a turn, reads its answer as it comes, and says that a tool is
// waited for.
//
//	go run turn.go SESSION TURN TEXT [TOKENS BYTES]
//
// TOKENS and BYTES are how much of the answer an earlier run has read.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/turns"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, args []string) error {
	nc, err := nats.Connect(os.Getenv("WEIR_NATS"), nats.MaxReconnects(-1))
	if err != nil {
		return err
	}
	defer nc.Close()
	c, err := turns.New(nc, turns.Options{})
	if err != nil {
		return err
	}
	defer c.Close()
	ref := turns.Ref{Tenant: schemas.DefaultTenant, Session: args[0], Turn: args[1]}
	message, err := json.Marshal(map[string]string{"role": "user", "content": args[2]})
	if err != nil {
		return err
	}
	most := int64(200)
	turn := &schemas.Turn{Weir: schemas.TurnMeta{Turn: ref.Turn}, Body: schemas.Body{Messages: []json.RawMessage{message}, MaxTokens: &most}}
	s, err := c.Publish(ctx, turns.Request{Session: ref.Session, Turn: turn})
	if err != nil {
		return err
	}
	if len(args) == 5 { // an earlier run has read so much
		var at turns.Position
		if _, err := fmt.Sscan(args[3]+" "+args[4], &at.Index, &at.TextAt); err != nil {
			return err
		}
		s.Close()
		if s, err = c.Resume(ctx, ref, at); err != nil {
			return err
		}
	}
	defer s.Close()
	res, err := turns.Collect(ctx, s, func(e *turns.Event) error {
		_, err := fmt.Print(e.Text)
		return err
	})
	if err != nil {
		return err
	}
	if res.Failure != nil {
		return fmt.Errorf("%s: %s", res.Failure.Code, res.Failure.Message)
	}
	_, err = c.Event(ctx, turns.EventRequest{Session: ref.Session, Kind: schemas.EventToolWait, Tool: "pytest", Expected: 20 * time.Second})
	return err
}
