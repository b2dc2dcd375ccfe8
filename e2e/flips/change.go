package flips

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/assign"
)

// changer writes random assignments. Whatever executor changes, the others do both
// phases meanwhile.
type changer struct {
	js    jetstream.JetStream
	cell  string
	watch *watch
	rng   *rand.Rand
	ids   []string
	roles map[string]schemas.Role // assigned last
	epoch map[string]uint64       // and in which epoch, where that is known
}

func newChanger(nc *nats.Conn, cell string, w *watch, seed uint64, roles map[string]schemas.Role, ids []string) (*changer, error) {
	js, err := jetstream.New(nc)
	return &changer{js: js, cell: cell, watch: w, rng: rand.New(rand.NewPCG(seed, 2)), roles: roles, epoch: map[string]uint64{}, ids: ids}, err
}

// next draws an executor and its next role. Two of three times it is the executor that
// decodes most, if the others can do without it.
func (c *changer) next() (id string, role schemas.Role) {
	c.watch.mu.Lock()
	for id := range c.roles { // what a planner wrote meanwhile
		if n := c.watch.newest[id]; n > c.epoch[id] {
			c.roles[id], c.epoch[id] = c.watch.roles[id][n].role, n
		}
	}
	c.watch.mu.Unlock()
	busiest := c.watch.busiest()
	if busiest == "" || !c.others(busiest) || c.rng.IntN(3) == 0 {
		busiest = ""
	}
	for {
		id = c.ids[c.rng.IntN(len(c.ids))]
		if busiest != "" {
			id = busiest
		}
		role = []schemas.Role{schemas.RolePrefill, schemas.RoleDecode, schemas.RolePrefill, schemas.RoleDecode, schemas.RoleMixed}[c.rng.IntN(5)]
		if role != c.roles[id] && c.others(id) {
			return id, role
		}
	}
}

// others do both phases without id.
func (c *changer) others(id string) bool {
	p, d := false, false
	for o, r := range c.roles {
		if o != id {
			p, d = p || r.Takes(schemas.StagePrefill), d || r.Takes(schemas.StageDecode)
		}
	}
	return p && d
}

// write assigns a role; NATS may be away for a while.
func (c *changer) write(ctx context.Context, id string, role schemas.Role) (uint64, error) {
	return c.assign(ctx, id, &schemas.Assignment{Header: schemas.H(), Role: role, By: "flips", Reason: "drawn"})
}

func (c *changer) assign(ctx context.Context, id string, a *schemas.Assignment) (uint64, error) {
	end := time.Now().Add(60 * time.Second)
	for {
		try, cancel := context.WithTimeout(ctx, 2*time.Second)
		_, seq, err := assign.Read(try, c.js, c.cell, id)
		var epoch uint64
		if err == nil {
			epoch, err = assign.Write(try, c.js, c.cell, id, a, seq)
		}
		cancel()
		if err == nil {
			c.roles[id], c.epoch[id] = a.Role, epoch
			return epoch, nil
		}
		if ctx.Err() != nil || time.Now().After(end) {
			return 0, fmt.Errorf("flips: assigning %s to %s: %w", a.Role, id, err)
		}
		pause(ctx, 20*time.Millisecond)
	}
}

// change makes one role change and waits until it is in force. One in ten is made by
// two assignments in a row, of which the second counts.
func (c *changer) change(ctx context.Context) (time.Duration, error) {
	id, role := c.next()
	if c.rng.IntN(10) == 0 {
		if _, err := c.write(ctx, id, schemas.RoleStandby); err != nil {
			return 0, err
		}
		pause(ctx, time.Duration(c.rng.IntN(30))*time.Millisecond)
	}
	at := time.Now()
	epoch, err := c.write(ctx, id, role)
	if err != nil {
		return 0, err
	}
	err = c.watch.taken(ctx, id, epoch, 30*time.Second)
	return time.Since(at), err
}
