package control

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/weir-dev/weir/planner/plan"
	"github.com/weir-dev/weir/planner/route"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/record"
)

func encodeConfig(conf any) (json.RawMessage, error) {
	b, err := json.Marshal(conf)
	if err != nil {
		return nil, fmt.Errorf("the configuration cannot be recorded: %w", err)
	}
	return b, nil
}

// Rebuild makes the actor of a recording as it was when the recording began.
func Rebuild(h record.Header) (schemas.Actor, error) {
	d := json.NewDecoder(bytes.NewReader(h.Config))
	d.DisallowUnknownFields()
	switch h.Actor {
	case "router":
		var c route.Config
		if err := d.Decode(&c); err != nil {
			return nil, fmt.Errorf("the router's configuration: %w", err)
		}
		return route.New(c), nil
	case "planner":
		var c plan.Config
		if err := d.Decode(&c); err != nil {
			return nil, fmt.Errorf("the planner's configuration: %w", err)
		}
		return plan.New(c), nil
	}
	return nil, fmt.Errorf("recordings of the actor %q are not known; known are planner and router", h.Actor)
}
