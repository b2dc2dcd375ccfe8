package jsrun

import (
	"errors"
	"testing"
	"time"

	"github.com/weir-dev/weir/schemas"
)

// frozen is an actor whose state takes long to write, and which asks for a snapshot
// once.
type frozen struct {
	*relay
	due   bool
	taken int
	begun chan int   // which snapshot is being made
	end   chan error // how that goes
}

func (f *frozen) SnapshotDue() bool { return f.due }

func (f *frozen) Freeze() func() ([]byte, error) {
	f.due = false
	f.taken++
	n := f.taken
	return func() ([]byte, error) {
		f.begun <- n
		return []byte{byte('0' + n)}, <-f.end
	}
}

// TestFreeze: an actor goes on while its state is written; one that asked for its
// snapshot gets another when the first could not be made; and the longer writing takes
// the later the next one comes.
func TestFreeze(t *testing.T) {
	bubble(t, func(t *testing.T, b *bus) {
		snaps, err := NewSnapshots(t.Context(), b.js)
		if err != nil {
			t.Fatal(err)
		}
		a := &frozen{relay: &relay{got: map[string]int{}, next: schemas.Never}, due: true, begun: make(chan int), end: make(chan error)}
		r, err := New(Config{
			Conn: b.nc, Actor: a, Name: "svc", Snapshots: snaps, SnapshotActor: "frozen", Shard: "0", SnapshotEvery: 30 * time.Second,
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := contextOf(t)
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		start := time.Now()
		if n := <-a.begun; n != 1 {
			t.Fatalf("snapshot %d comes first", n)
		}
		steps := 0
		r.Inject(schemas.Msg{Kind: schemas.KindDone, Done: &schemas.Done{Job: "x"}})
		if err := r.Call(t.Context(), func() { steps = a.got["done x"] }); err != nil || steps != 1 {
			t.Errorf("%d steps while a snapshot is made, %v", steps, err)
		}
		a.end <- errors.New("no room")
		<-a.begun
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("a snapshot that was asked for was tried again after %s", took)
		}
		time.Sleep(10 * time.Second)
		a.end <- nil
		start = time.Now()
		<-a.begun
		if rest := time.Since(start); rest < 190*time.Second {
			t.Errorf("the next snapshot came %s after one that took 10 s", rest)
		}
		a.end <- nil
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
