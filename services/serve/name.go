package serve

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/weir-dev/weir/schemas"
)

// name gives an executor without an id the name of its host. A container's host
// name is its own, so the copies of a scaled service differ, and a container that
// starts again keeps its id and its role.
func (o *Options) name() error {
	if o.ID != "" {
		if err := schemas.CheckID("--id", o.ID); err != nil {
			return fmt.Errorf("%w: %w", ErrUsage, err)
		}
		return nil
	}
	if !slices.Contains(o.Targets, "executor") {
		return nil
	}
	var err error
	o.ID, err = HostID()
	return err
}

// HostID is the id of an executor that was given none.
func HostID() (string, error) {
	h, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("%w: an executor needs --id, because this host has no name: %w", ErrUsage, err)
	}
	return hostID(h), nil
}

// hostID makes a subject token of a host name.
func hostID(h string) string { return schemas.CleanID(strings.ReplaceAll(h, ".", "-")) }
