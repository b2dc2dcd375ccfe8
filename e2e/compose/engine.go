package compose

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/weir-dev/weir/e2e/stack"
)

// ErrNoEngine: containers cannot be started on this machine.
var ErrNoEngine = errors.New("no container engine")

// Bounds of the engine's start and stop.
const (
	engineStart = 40 * time.Second
	engineStop  = 30 * time.Second
)

// Engine is a container engine: the one that runs, or one that was started here.
type Engine struct {
	env     []string
	compose []string // the command line of Compose
	cmd     *exec.Cmd
	life    *os.File // the engine ends when this is closed
	exited  chan struct{}
	dir     string
	lock    *os.File
}

// StartEngine finds a running engine or starts one that keeps its images below the
// cache folder, so that it meets nobody else's. The error is ErrNoEngine with the reason.
func StartEngine(ctx context.Context) (*Engine, error) {
	e := &Engine{env: os.Environ()}
	if _, err := exec.LookPath("docker"); err != nil {
		return nil, fmt.Errorf("%w: docker is not installed", ErrNoEngine)
	}
	if _, err := e.Docker(ctx, "version", "--format", "{{.Server.Version}}"); err != nil {
		if err := e.launch(ctx); err != nil {
			return nil, errors.Join(err, e.Stop())
		}
	}
	for _, c := range [][]string{{"docker", "compose"}, {"docker-compose"}} {
		if _, err := e.run(ctx, nil, append(c, "version")...); err == nil {
			e.compose = c
			return e, nil
		}
	}
	return nil, errors.Join(fmt.Errorf("%w: neither docker compose nor docker-compose is installed", ErrNoEngine), e.Stop())
}

// launch starts an engine of our own and waits until it answers.
func (e *Engine) launch(ctx context.Context) error {
	bin, err := exec.LookPath("dockerd")
	if err != nil {
		return fmt.Errorf("%w: none runs, and dockerd is not installed", ErrNoEngine)
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w: none runs, and only root can start dockerd", ErrNoEngine)
	}
	cache, err := cacheDir()
	if err != nil {
		return err
	}
	if err := e.lockData(cache); err != nil {
		return err
	}
	if e.dir, err = os.MkdirTemp("", "weir-dockerd-"); err != nil {
		return err
	}
	host := "unix://" + filepath.Join(e.dir, "docker.sock")
	log, err := os.Create(filepath.Join(e.dir, "log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the child has its own descriptor
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }() // the child has its own copy
	e.life = w
	e.cmd = exec.Command("/bin/sh", "-c", keeper, "sh", bin, "--host", host, "--data-root", filepath.Join(cache, "docker"),
		"--exec-root", filepath.Join(e.dir, "exec"), "--pidfile", filepath.Join(e.dir, "pid"))
	e.cmd.Stdout, e.cmd.Stderr = log, log
	e.cmd.ExtraFiles = []*os.File{r}
	e.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := e.cmd.Start(); err != nil {
		e.cmd = nil
		return fmt.Errorf("%w: dockerd did not start: %w", ErrNoEngine, err)
	}
	e.exited = make(chan struct{})
	go func() {
		_ = e.cmd.Wait() // its log tells why it ended
		close(e.exited)
	}()
	e.env = append(e.env, "DOCKER_HOST="+host)
	if err := e.answers(ctx, log.Name()); err != nil {
		return err
	}
	return e.sweep(ctx)
}

// keeper ends the engine when the pipe at descriptor 3 closes, however this
// process ended.
const keeper = `"$@" 3<&- & pid=$!
{ read -r _ <&3; kill "$pid"; } &
wait "$pid"`

// sweep removes what an interrupted run left on our own engine, which would start
// again with it, and images that have lost their names.
func (e *Engine) sweep(ctx context.Context) error {
	ids, err := e.Docker(ctx, "ps", "-aq")
	if err != nil {
		return err
	}
	if ids != "" {
		if _, err := e.Docker(ctx, append([]string{"rm", "-f"}, strings.Fields(ids)...)...); err != nil {
			return err
		}
	}
	for _, kind := range []string{"network", "volume", "image"} {
		if _, err := e.Docker(ctx, kind, "prune", "-f"); err != nil {
			return err
		}
	}
	return nil
}

// lockData keeps two test runs from starting an engine on the same data.
func (e *Engine) lockData(cache string) error {
	lock, err := os.OpenFile(filepath.Join(cache, "docker.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	e.lock = lock
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fmt.Errorf("%w: another test run has one on %s", ErrNoEngine, cache)
	}
	return nil
}

func (e *Engine) answers(ctx context.Context, log string) error {
	ctx, cancel := context.WithTimeout(ctx, engineStart)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		_, err := e.Docker(ctx, "version", "--format", "{{.Server.Version}}")
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-e.exited:
			return fmt.Errorf("%w: dockerd ended: %s", ErrNoEngine, lastLines(log))
		case <-ctx.Done():
			return fmt.Errorf("%w: dockerd did not answer within %s: %w: %s", ErrNoEngine, engineStart, err, lastLines(log))
		}
	}
}

// Stop ends the engine if it was started here.
func (e *Engine) Stop() error {
	var errs []error
	if e.life != nil {
		errs = append(errs, e.life.Close())
	}
	if e.cmd != nil {
		select {
		case <-e.exited:
		case <-time.After(engineStop):
			errs = append(errs, fmt.Errorf("dockerd did not end within %s", engineStop), syscall.Kill(-e.cmd.Process.Pid, syscall.SIGKILL))
			<-e.exited
		}
	}
	if e.dir != "" {
		errs = append(errs, os.RemoveAll(e.dir))
	}
	if e.lock != nil {
		errs = append(errs, e.lock.Close())
	}
	return errors.Join(errs...)
}

// Docker runs a docker command and returns what it printed, without outer space.
func (e *Engine) Docker(ctx context.Context, args ...string) (string, error) {
	return e.run(ctx, nil, append([]string{"docker"}, args...)...)
}

// run runs a command in the repository with the engine's and further variables.
func (e *Engine) run(ctx context.Context, env []string, args ...string) (string, error) {
	root, err := stack.Root()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = root
	cmd.Env = append(append([]string{}, e.env...), env...)
	// The programs that it starts end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(string(out)), nil
}

// cacheDir is the folder of compose/images.sh.
func cacheDir() (string, error) {
	dir := os.Getenv("WEIR_CACHE")
	if dir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(user, "weir")
	}
	return dir, os.MkdirAll(dir, 0o755)
}

func lastLines(file string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "\n")
}
