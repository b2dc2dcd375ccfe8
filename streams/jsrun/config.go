package jsrun

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
)

// Config says which actor runs on which inputs. Conn, Actor and Name are needed.
type Config struct {
	Conn  *nats.Conn
	Actor schemas.Actor
	// Name of the service instance: logs, snapshots, names of nameless consumers.
	Name string
	// Topology is provisioned at start and whenever NATS comes back without its
	// memory streams. The default is streams.Topology of zero options; it must be
	// the one that the deployment uses.
	Topology []streams.Stream
	Inputs   []streams.Input

	// Local does an operation outside the bus. It is called from the goroutine
	// that owns the actor and must not block; done may be called once per
	// operation, from any goroutine, also before Local returns.
	Local func(op *schemas.Op, done func(schemas.OpDone))

	// OnIn sees every message before the actor does, OnOut every bus message
	// before it is encoded and may set its Trace. Both run in the actor's goroutine.
	OnIn  func(in *schemas.Msg)
	OnOut func(in, out *schemas.Msg)
	// OnBad is asked for messages to publish, besides the dead letter, when an
	// input cannot be decoded or an output cannot be encoded (body is nil then).
	// Lineage answers the caller of an unreadable turn here.
	OnBad func(subject string, seq uint64, body []byte, err error) []schemas.Msg

	// Clock is time.Now by default.
	Clock  func() schemas.Time
	Logger *slog.Logger

	// MaxInflight and MaxInflightBytes bound publishes without acknowledgement;
	// above either no input is taken, above twice that no completion, above four
	// times that no tick. 4,096 and 64 MiB by default.
	MaxInflight      int
	MaxInflightBytes int
	// Inbox bounds decoded inputs that wait for the actor, 512 by default.
	Inbox int
	// AckTimeout: a publish that is not acknowledged so long is sent again with
	// the same id. 5 s by default.
	AckTimeout time.Duration
	// RetryFor bounds the time, NATS being reachable, after which a publish that
	// fails again and again is given up. 2 min by default.
	RetryFor time.Duration
	// NakDelay is how long an input waits that is given back, 1 s by default.
	NakDelay time.Duration
	// StopTimeout bounds the wait for outstanding acknowledgements at the end, 5 s by default.
	StopTimeout time.Duration

	// Snapshots, when set, keeps the actor's state under (Name or Actorname,
	// Shard). It is read at start and written every SnapshotEvery and at the end.
	Snapshots     *Snapshots
	SnapshotActor string // Name by default
	Shard         string // "0" by default
	SnapshotEvery time.Duration
}

func (c *Config) fill() error {
	switch {
	case c.Conn == nil || c.Actor == nil:
		return fmt.Errorf("%w: Conn and Actor must be set", ErrConfig)
	case !schemas.ValidID(c.Name):
		return fmt.Errorf("%w: Name: %w", ErrConfig, schemas.CheckID("name", c.Name))
	}
	if c.Topology == nil {
		c.Topology = streams.Topology(streams.Options{})
	}
	if err := streams.CheckInputs(c.Topology, c.Inputs); err != nil {
		return err
	}
	if c.Clock == nil {
		c.Clock = func() schemas.Time { return schemas.Time(time.Now().UnixNano()) }
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	orInt(&c.MaxInflight, 4096)
	orInt(&c.MaxInflightBytes, 64<<20)
	orInt(&c.Inbox, 512)
	orDur(&c.AckTimeout, 5*time.Second)
	orDur(&c.RetryFor, 2*time.Minute)
	orDur(&c.NakDelay, time.Second)
	orDur(&c.StopTimeout, 5*time.Second)
	if c.SnapshotActor == "" {
		c.SnapshotActor = c.Name
	}
	if c.Shard == "" {
		c.Shard = "0"
	}
	return nil
}

func orInt(v *int, d int) {
	if *v <= 0 {
		*v = d
	}
}

func orDur(v *time.Duration, d time.Duration) {
	if *v <= 0 {
		*v = d
	}
}
