package up

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weir-dev/weir/kvtier/hostmem"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/model"
	"github.com/weir-dev/weir/services/proc"
	"github.com/weir-dev/weir/services/serve"
	"github.com/weir-dev/weir/streams/jsrun"
)

// Options of `weir up`.
type Options struct {
	serve.Options
	Prefill, Decode, Mixed int
	Nodes                  int // tier nodes, 1 by default
	ReadyWait              time.Duration
	Out                    io.Writer // where lines for people and programs go
	Err                    io.Writer
}

// ErrDir: another stack uses the folder.
var ErrDir = errors.New("folder in use")

// process is one line of the ready event.
type process struct {
	ID   string `json:"id"`
	Role string `json:"role"`
	PID  int    `json:"pid"`
}

// stack is a running supervisor.
type stack struct {
	o     Options
	nodes []node
	model *model.Model
	nc    *nats.Conn

	mu    sync.Mutex
	procs map[string]process
	ready bool
}

// Run starts the stack, says when it is ready, and runs until ctx ends.
func Run(ctx context.Context, o Options) error {
	unlock, err := prepare(&o)
	if err != nil {
		return err
	}
	defer unlock()
	m, err := model.Open(model.Options{Engine: o.Engine, Path: o.ModelPath, Dir: o.Dir, LibDir: o.LibDir, Name: o.ModelName, Log: o.Err, NullVision: o.NullVision})
	if err != nil {
		return err
	}
	defer func() { _ = m.Close() }() // read-only mapping
	if m.Trained > 0 && o.Context > m.Trained {
		return fmt.Errorf("%w: --ctx is %d, but the model was made for %d tokens", serve.ErrUsage, o.Context, m.Trained)
	}
	s := &stack{o: o, nodes: nodesOf(&o), model: m, procs: map[string]process{}}
	if err := s.preflight(ctx); err != nil {
		return err
	}
	s.announce()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err = s.supervise(ctx, cancel)
	if s.nc != nil {
		s.nc.Close()
	}
	// Nothing maps the memory any more, unless it is another stack's.
	for _, n := range s.nodes {
		if rm := hostmem.Remove(n.arena); rm != nil && !errors.Is(rm, hostmem.ErrBusy) {
			err = errors.Join(err, rm)
		}
	}
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// prepare checks the options, takes the folder and finds free ports.
func prepare(o *Options) (unlock func(), err error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Prefill < 0 || o.Decode < 0 || o.Mixed < 0 || o.Prefill+o.Decode+o.Mixed > 64 {
		return nil, fmt.Errorf("%w: --prefill, --decode and --mixed must be 0 to 64 executors together", serve.ErrUsage)
	}
	if o.Mixed == 0 && (o.Prefill == 0) != (o.Decode == 0) {
		return nil, fmt.Errorf("%w: %d prefill and %d decode executors cannot do both phases; add the other kind or --mixed", serve.ErrUsage, o.Prefill, o.Decode)
	}
	if o.Prefill+o.Decode+o.Mixed == 0 {
		o.Prefill, o.Decode = 1, 1
	}
	if err := checkNodes(o); err != nil {
		return nil, err
	}
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Dir, 0o750); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(o.Dir, "lock"), os.O_CREATE|os.O_RDWR, 0o640)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("%w: another weir runs in %s; stop it, or choose another folder with --dir", ErrDir, o.Dir)
	}
	unlock = func() { _ = lock.Close() }
	if o.Arena == "" {
		sum := sha256.Sum256([]byte(o.Dir))
		o.Arena = filepath.Join(shmDir(o.Dir), "weir-"+hex.EncodeToString(sum[:6]))
	}
	if o.EmbeddedNATS() {
		if err := fitStore(o); err != nil {
			unlock()
			return nil, err
		}
	}
	if o.HTTP, err = freeAddress(o.HTTP, "--http"); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// fitStore chooses NATS's port, and stream limits that the disk can hold: a full
// stream refuses with a reason, a full disk does not.
func fitStore(o *Options) (err error) {
	if o.NATS, err = freeAddress(o.NATS, "--nats"); err != nil {
		return err
	}
	fitted, err := jsrun.FitDisk(filepath.Join(o.Dir, "nats"), o.StreamOptions())
	o.StreamBytes = fitted.MaxBytes
	return err
}

func shmDir(fallback string) string {
	if st, err := os.Stat("/dev/shm"); err == nil && st.IsDir() {
		return "/dev/shm"
	}
	return fallback
}

// freeAddress checks that an address can be listened on, and chooses the port
// when it is 0.
func freeAddress(addr, flag string) (string, error) {
	l, err := net.Listen("tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return "", fmt.Errorf("address %s is in use; stop what listens there, or choose another with %s", addr, flag)
	}
	if err != nil {
		return "", fmt.Errorf("%s %q: %w", flag, addr, err)
	}
	got := l.Addr().String()
	return got, l.Close()
}

func (s *stack) announce() {
	if s.o.Output == "json" {
		return
	}
	if s.model.Default {
		fmt.Fprintf(s.o.Err, "model   %s: random weights, it writes gibberish. Your own: weir up --model FILE.gguf\n", s.model.Name)
	} else {
		fmt.Fprintf(s.o.Err, "model   %s (%s)\n", s.model.Name, s.model.Path)
	}
	if s.model.Engine == model.EngineGo && s.o.Engine == model.EngineAuto {
		fmt.Fprintln(s.o.Err, "engine  go, because the llama.cpp libraries are not installed; \"make engine\" installs them")
	} else {
		fmt.Fprintf(s.o.Err, "engine  %s\n", s.model.Engine)
	}
}

// childArgs are the flags that every child gets; n is the node whose memory it uses.
func (s *stack) childArgs(targets, id string, n node) []string {
	o := s.o
	args := []string{
		"serve", "--target", targets, "--id", id, "--dir", o.Dir, "--nats", o.URL(), "--http", o.HTTP, "--cell", o.Cell, "--node", n.id,
		"--engine", s.model.Engine, "--model", s.model.Path, "--model-name", s.model.Name, "--llama-lib", s.model.LibDir,
		"--ctx", strconv.Itoa(o.Context), "--slots", strconv.Itoa(o.Slots), "--keep-sequences=" + strconv.FormatBool(o.Keep), "--threads", strconv.Itoa(o.Threads), "--gpu-layers", strconv.Itoa(o.GPULayers),
		"--kv-mem", strconv.FormatInt(n.bytes, 10), "--kv-dir", n.arena, "--kv-order", o.KVOrder, "--peer-addr", o.PeerAddr, "--direct-max", strconv.Itoa(o.DirectMax), "--admit=" + strconv.FormatBool(o.Admit), "--deadline", o.Deadline.String(),
		"--durability", o.Durability, "--store-mib", strconv.FormatInt(o.StoreMB, 10), "--log-level", o.LogLevel, "--nats-replicas", strconv.Itoa(o.Replicas),
	}
	for _, name := range slices.Sorted(maps.Keys(o.StreamBytes)) {
		args = append(args, "--stream-bytes", fmt.Sprintf("%s=%d", name, o.StreamBytes[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(o.Retain)) {
		args = append(args, "--retain", name+"="+o.Retain[name])
	}
	if o.KVDisk != "" {
		args = append(args, "--kv-disk", o.KVDisk, "--kv-disk-bytes", strconv.FormatInt(o.KVDiskBytes, 10))
	}
	if o.NullVision {
		args = append(args, "--null-vision")
	}
	if o.Engine == model.EngineSim {
		args = append(args, "--speed", strconv.FormatFloat(o.Speed, 'g', -1, 64), "--calib", o.Calib)
	}
	if o.KeepBilling {
		args = append(args, "--keep-billing-header")
	}
	if o.TraceFile != "" {
		args = append(args, "--trace-file", o.TraceFile)
	}
	args = append(args, "--planner", o.Planner)
	if o.Record != "" {
		args = append(args, "--record", o.Record, "--record-bytes", strconv.FormatInt(o.RecordBytes, 10))
	}
	return args
}

// children are all processes of the stack, in the order in which they start.
func (s *stack) children() []*child {
	targets := "tokenizer,lineage,router,gateway"
	if s.o.Planner != serve.PlannerOff {
		targets += ",planner"
	}
	args := s.childArgs(targets, "control", s.nodes[0])
	if s.o.EmbeddedNATS() {
		args = s.childArgs("nats,"+targets, "control", s.nodes[0])
		for i, a := range args {
			if a == "--nats" {
				args[i+1] = s.o.NATS
			}
		}
	}
	cs := []*child{{id: "control", role: "control", args: args}}
	for _, n := range s.nodes {
		cs = append(cs, &child{id: n.tier, role: "tier", args: s.childArgs("tier", n.tier, n)})
	}
	next := 0 // node of the next executor
	add := func(n int, prefix string, role schemas.Role) {
		for i := range n {
			id := prefix + strconv.Itoa(i)
			cs = append(cs, &child{id: id, role: string(role), args: s.childArgs("executor", id, s.nodes[next%len(s.nodes)])})
			next++
		}
	}
	add(s.o.Prefill, "p", schemas.RolePrefill)
	add(s.o.Decode, "d", schemas.RoleDecode)
	add(s.o.Mixed, "m", schemas.RoleMixed)
	return cs
}

// supervise runs the children until ctx ends; control ends last, because the
// others still tell it what they hold.
func (s *stack) supervise(ctx context.Context, cancel context.CancelCauseFunc) error {
	cs := s.children()
	var late, early sync.WaitGroup // control; everything else
	lateCtx, stopLate := context.WithCancel(context.WithoutCancel(ctx))
	defer stopLate()
	for _, c := range cs {
		log, err := openLog(s.o.Dir, c.id)
		if err != nil {
			return err
		}
		defer func() { _ = log.Close() }()
		c.log, c.onStart, c.onEnd, c.starting = log, s.started, s.ended, s.starting
		c.logPath = log.Name()
		wg, run := &early, ctx
		if c.role == "control" {
			wg, run = &late, lateCtx
		}
		wg.Go(func() {
			if err := c.run(run); err != nil {
				cancel(err)
			}
		})
		if c.role == "control" {
			if err := s.connect(ctx); err != nil {
				cancel(err)
				break
			}
			if err := s.checkSpeed(ctx); err != nil {
				cancel(err)
				break
			}
		}
	}
	if ctx.Err() == nil {
		if err := s.waitReady(ctx, cs); err != nil {
			cancel(err)
		}
	}
	<-ctx.Done()
	early.Wait()
	stopLate()
	late.Wait()
	return context.Cause(ctx)
}

// connect reaches NATS, which control may just be starting.
func (s *stack) connect(ctx context.Context) error {
	if s.nc != nil {
		return nil
	}
	wait := time.NewTimer(s.o.ReadyWait)
	defer wait.Stop()
	for {
		nc, err := jsrun.Connect(jsrun.ConnectOptions{URL: s.o.URL(), Name: "weir-up", Logger: s.o.Log(io.Discard)})
		if err == nil {
			s.nc = nc
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-wait.C:
			return fmt.Errorf("NATS is not reachable at %s: %w; see %s", s.o.URL(), err, filepath.Join(s.o.Dir, "logs", "control.log"))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// started notes a process and, once the stack is ready, tells programs about it.
func (s *stack) started(c *child, pid int, again bool) {
	s.mu.Lock()
	p := process{ID: c.id, Role: c.role, PID: pid}
	s.procs[c.id] = p
	tell := s.ready && again
	s.mu.Unlock()
	if tell && s.o.Output == "json" {
		s.print(map[string]any{"event": "restarted", "id": c.id, "role": c.role, "pid": pid})
	}
}

// starting: the stack has never been ready.
func (s *stack) starting() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.ready
}

// ended tells the router at once that an executor is gone, and whether somebody
// killed it: then none of its turns is to blame.
func (s *stack) ended(c *child, err error) {
	outside, cause := proc.Outside(err), proc.Cause(err)
	if exited(err) {
		cause += ": " + c.lastWords()
	}
	if s.o.Output == "json" {
		s.print(map[string]any{"event": "ended", "id": c.id, "role": c.role, "outside": outside, "cause": cause})
	} else {
		fmt.Fprintf(s.o.Err, "%-7s ended (%s), starting it again; log: %s\n", c.id, cause, filepath.Join(s.o.Dir, "logs", c.id+".log"))
	}
	if c.role == "control" || c.role == "tier" || s.nc == nil {
		return
	}
	c.mu.Lock()
	boot := c.boot
	c.mu.Unlock()
	h := &schemas.Heartbeat{Header: schemas.H(), Executor: c.id, Boot: boot, Dead: true, Outside: outside, Cause: proc.Cause(err)}
	body, err := schemas.Encode(h)
	if err != nil {
		return
	}
	// A core message may be lost with a NATS or a router that is just ending, so it
	// is repeated; it names the life that ended, so a later one is not meant.
	say := func() { _ = s.nc.Publish(schemas.HBSubject(s.o.Cell, c.id), body) }
	say()
	for _, d := range []time.Duration{300 * time.Millisecond, time.Second, 2500 * time.Millisecond} {
		time.AfterFunc(d, say)
	}
}

func (s *stack) print(v any) {
	b, err := json.Marshal(v)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintln(s.o.Out, string(b))
}

// waitReady assigns the roles and waits until every executor reports its role
// and the gateway answers.
func (s *stack) waitReady(ctx context.Context, cs []*child) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.o.ReadyWait, fmt.Errorf("the stack was not ready within %s; see %s", s.o.ReadyWait, filepath.Join(s.o.Dir, "logs")))
	defer cancel()
	sub, err := s.nc.SubscribeSync(schemas.HBSubject(s.o.Cell, "*"))
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }()
	missing, err := s.firstRoles(ctx, cs)
	if err != nil {
		return err
	}
	for len(missing) > 0 {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return context.Cause(ctx)
		}
		var h schemas.Heartbeat
		if schemas.Decode(m.Data, &h) != nil {
			continue
		}
		epoch, wanted := missing[h.Executor]
		if wanted && !h.Dead && h.Epoch >= epoch && h.Role != schemas.RoleDraining {
			delete(missing, h.Executor)
		}
	}
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.o.HTTP+"/readyz", nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				break
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
	s.sayReady(cs)
	return nil
}

func (s *stack) sayReady(cs []*child) {
	s.mu.Lock()
	s.ready = true
	var ps []process
	for _, c := range cs {
		ps = append(ps, s.procs[c.id])
	}
	s.mu.Unlock()
	if s.o.Output == "json" {
		s.print(map[string]any{
			"event": "ready", "http": "http://" + s.o.HTTP, "nats": s.o.URL(), "dir": s.o.Dir, "kv_dir": s.nodes[0].arena, "kv_dirs": arenas(s.nodes), "cell": s.o.Cell,
			"model": s.model.Name, "engine": s.model.Engine, "pid": os.Getpid(), "processes": ps,
		})
		return
	}
	fmt.Fprintf(s.o.Out, "ready   http://%s/v1   %s\n", s.o.HTTP, s.o.URL())
	for _, p := range ps {
		fmt.Fprintf(s.o.Out, "        %-8s %-8s pid %d\n", p.ID, p.Role, p.PID)
	}
	fmt.Fprintf(s.o.Out, "try     weir turn \"Hello\" --nats %s     (Ctrl-C stops everything)\n", s.o.URL())
}
