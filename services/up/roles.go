package up

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/assign"
	"github.com/weir-dev/weir/services/serve"
)

// firstRoles gives every executor its role and returns the epochs that must come into
// force.
func (s *stack) firstRoles(ctx context.Context, cs []*child) (map[string]uint64, error) {
	keep := s.keeps
	if !s.bothPhases(ctx, cs) {
		keep = func(a *schemas.Assignment) bool { return a.Pinned && s.keeps(a) }
	}
	missing := map[string]uint64{}
	for _, c := range cs {
		if c.role == "control" || c.role == "tier" {
			continue
		}
		epoch, err := assign.Start(ctx, s.nc, s.o.Cell, c.id, schemas.Role(c.role), "weir up", keep)
		if err != nil {
			return nil, err
		}
		missing[c.id] = epoch
	}
	return missing, nil
}

// keeps tells which roles of an earlier run stay although the flags say otherwise: what
// people hold, and what a planner that still acts has found to be right.
func (s *stack) keeps(a *schemas.Assignment) bool {
	switch s.o.Planner {
	case serve.PlannerAct:
		return a.Pinned || a.Plan != ""
	case serve.PlannerAdvise:
		return a.Pinned
	}
	return false
}

// bothPhases tells whether the roles that stay and those of the flags together do both
// phases: of another number of executors they may not.
func (s *stack) bothPhases(ctx context.Context, cs []*child) bool {
	js, err := jetstream.New(s.nc)
	if err != nil {
		return false
	}
	var roles []schemas.Role
	for _, c := range cs {
		if c.role == "control" || c.role == "tier" {
			continue
		}
		role := schemas.Role(c.role)
		// On the first start the stream may not be there yet: nothing is kept then.
		if a, _, err := assign.Read(ctx, js, s.o.Cell, c.id); err == nil && a != nil && s.keeps(a) {
			role = a.Role
		}
		roles = append(roles, role)
	}
	return serves(roles)
}

// serves tells whether some role prefills and some role decodes.
func serves(roles []schemas.Role) bool {
	p, d := false, false
	for _, r := range roles {
		p, d = p || r.Takes(schemas.StagePrefill), d || r.Takes(schemas.StageDecode)
	}
	return p && d
}
