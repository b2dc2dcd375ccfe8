package compose

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"time"
)

// ErrNoImages: an image that only a network could give is not to be had.
var ErrNoImages = errors.New("images cannot be made")

// Images makes the images of the stack from the weir binary and returns the
// variables that name them. kind is "local" or "collector".
func (e *Engine) Images(ctx context.Context, kind, binary string) ([]string, error) {
	out, err := e.run(ctx, []string{"WEIR_BIN=" + binary}, "compose/images.sh", kind)
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 3 {
		return nil, fmt.Errorf("%w: %w", ErrNoImages, err)
	}
	return strings.Fields(out), err
}

// Project is one stack.
type Project struct {
	engine   *Engine
	name     string
	env      []string
	profiles []string
}

// NewProject names a stack; nothing is started. env are variables of the compose file.
// Its ports are chosen here and not by the engine, which would choose others when a
// container starts again.
func (e *Engine) NewProject(name string, env []string, profiles ...string) (*Project, error) {
	env = append([]string{}, env...)
	for _, v := range []string{"WEIR_HTTP_PORT", "WEIR_NATS_PORT", "WEIR_SPANMETRICS_PORT"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { _ = l.Close() }() // after all are chosen, so that they differ
		env = append(env, fmt.Sprintf("%s=%d", v, l.Addr().(*net.TCPAddr).Port))
	}
	return &Project{engine: e, name: name, env: env, profiles: profiles}, nil
}

// Compose runs a command of Compose on the project.
func (p *Project) Compose(ctx context.Context, args ...string) (string, error) {
	line := append([]string{}, p.engine.compose...)
	line = append(line, "-p", p.name, "-f", "compose/compose.yml")
	for _, f := range p.profiles {
		line = append(line, "--profile", f)
	}
	return p.engine.run(ctx, p.env, append(line, args...)...)
}

// Up starts everything; scale is as Compose takes it, "decode=2".
func (p *Project) Up(ctx context.Context, scale ...string) error {
	args := []string{"up", "-d", "--no-build"}
	for _, s := range scale {
		args = append(args, "--scale", s)
	}
	_, err := p.Compose(ctx, args...)
	return err
}

// Down stops everything, removes the volumes, and reports what is left behind.
func (p *Project) Down(ctx context.Context) error {
	_, err := p.Compose(ctx, "down", "-v", "--remove-orphans", "-t", "15")
	return errors.Join(err, p.leftovers(ctx))
}

// leftovers reports containers, volumes and networks of the project.
func (p *Project) leftovers(ctx context.Context) error {
	var errs []error
	for _, list := range [][]string{{"ps", "-a"}, {"volume", "ls"}, {"network", "ls"}} {
		args := append(append([]string{}, list...), "-q", "--filter", "label=com.docker.compose.project="+p.name)
		out, err := p.engine.Docker(ctx, args...)
		if err == nil && out != "" {
			err = fmt.Errorf("docker %s shows what the stack left behind: %s", list[0], strings.Join(strings.Fields(out), " "))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Containers are the ids of a service's containers.
func (p *Project) Containers(ctx context.Context, service string) ([]string, error) {
	out, err := p.Compose(ctx, "ps", "-q", service)
	if err != nil {
		return nil, err
	}
	ids := strings.Fields(out)
	if len(ids) == 0 {
		return nil, fmt.Errorf("service %s has no container", service)
	}
	return ids, nil
}

// Container is the id of a service's only container.
func (p *Project) Container(ctx context.Context, service string) (string, error) {
	ids, err := p.Containers(ctx, service)
	if err != nil {
		return "", err
	}
	if len(ids) != 1 {
		return "", fmt.Errorf("service %s has %d containers", service, len(ids))
	}
	return ids[0], nil
}

// Executor is the id under which weir knows an executor's container.
func Executor(container string) string { return container[:min(12, len(container))] }

// Address is where a published port of a service answers.
func (p *Project) Address(ctx context.Context, service, port string) (string, error) {
	return p.Compose(ctx, "port", service, port)
}

// WaitHealthy waits until the health check of a container succeeds.
func (p *Project) WaitHealthy(ctx context.Context, container string) error {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		state, err := p.engine.Docker(ctx, "inspect", "-f", "{{.State.Health.Status}}", container)
		if err == nil && state == "healthy" {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("container %s is %q: %w", Executor(container), state, errors.Join(ctx.Err(), err))
		}
	}
}

// BridgeAddress is this machine's address on the engine's default network, which
// containers reach.
func (e *Engine) BridgeAddress(ctx context.Context) (string, error) {
	name, err := e.Docker(ctx, "network", "inspect", "bridge", "-f", `{{index .Options "com.docker.network.bridge.name"}}`)
	if err != nil {
		return "", err
	}
	link, err := net.InterfaceByName(name)
	if err != nil {
		return "", fmt.Errorf("the engine's bridge %q is not on this machine: %w", name, err)
	}
	addrs, err := link.Addrs()
	if err != nil {
		return "", err
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() {
			return p.Addr().String(), nil
		}
	}
	return "", fmt.Errorf("the engine's bridge %s has no IPv4 address", name)
}

// Logs are the last lines of every container, for a test that failed.
func (p *Project) Logs(ctx context.Context) string {
	ps, err := p.Compose(ctx, "ps")
	if err != nil {
		ps = err.Error()
	}
	logs, err := p.Compose(ctx, "logs", "--no-color", "--tail", "15")
	if err != nil {
		logs = err.Error()
	}
	return ps + "\n" + logs
}

// projectName is different for each test process, so that what an interrupted one
// left does not disturb the next.
func projectName() string { return fmt.Sprintf("weir-e2e-%d", os.Getpid()) }
