package exact

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/assign"
	"github.com/weir-dev/weir/services/turns"
)

// moved runs each prompt once more and swaps the executors' roles while it decodes.
// The other executor imports what was sealed, is forced along what was delivered, and
// goes on.
func (b *bench) moved(ctx context.Context, cases []Case) error {
	before := map[string]schemas.Role{"p0": schemas.RolePrefill, "d0": schemas.RoleDecode}
	swapped := map[string]schemas.Role{"p0": schemas.RoleDecode, "d0": schemas.RolePrefill}
	for _, c := range cases {
		c.Condition = Moved
		refs := b.refer(c)
		if refs.err != nil {
			return refs.err
		}
		if err := b.mem.Evict(ctx); err != nil {
			return err
		}
		roles := make(chan error, 1)
		asked := false
		each := func(*turns.Event) error {
			if !asked { // the first token is there
				asked = true
				go func() { roles <- b.assign(ctx, swapped) }()
			}
			return nil
		}
		res, err := b.turn(ctx, c, c.prompt(b.ref.model.Vocab.Size()), nil, each)
		if err != nil {
			return err
		}
		if !asked {
			return fmt.Errorf("%v: the answer came without an event before its result", c)
		}
		if err := errors.Join(<-roles, b.stack.SetRoles(ctx, before)); err != nil {
			return err
		}
		problem := ""
		if res.DecodeOn != "p0" || res.Attempt < 2 {
			problem = fmt.Sprintf("it was not moved: attempt %d on %s", res.Attempt, res.DecodeOn)
		}
		b.judge(c, res, refs, problem)
	}
	return nil
}

// assign writes roles without waiting until they are in force.
func (b *bench) assign(ctx context.Context, roles map[string]schemas.Role) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for id, role := range roles {
		if err := assign.Role(ctx, b.client.Conn(), b.stack.Ready.Cell, id, role, "e2e"); err != nil {
			return err
		}
	}
	return nil
}
