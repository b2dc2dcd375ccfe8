package sim

import (
	"context"
	"errors"
)

type world struct{}

func newWorld(*Scenario, System, Options) (*world, error) {
	return nil, errors.New("sim: under construction")
}

func (w *world) run(context.Context) (*Figures, error) { return nil, nil }
