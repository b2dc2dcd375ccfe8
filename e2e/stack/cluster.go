package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/streams/jsrun"
)

// Cluster is several NATS servers, each in a process of its own, that keep streams
// together.
type Cluster struct {
	URL   string // of all of them
	Nodes []*NATS

	dir string
}

// LaunchCluster starts n servers and waits until they keep streams.
func LaunchCluster(ctx context.Context, n int) (*Cluster, error) {
	dir, err := os.MkdirTemp("", "weir-cluster-")
	if err != nil {
		return nil, err
	}
	c := &Cluster{dir: dir}
	clients, err := freePorts(2 * n)
	if err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	routes := strings.Join(clients[n:], ",")
	for i := range n {
		x := &NATS{dir: filepath.Join(dir, strconv.Itoa(i)), listen: clients[i], stderr: &tail{}}
		x.args = []string{"--name", "n" + strconv.Itoa(i), "--cluster-listen", clients[n+i], "--routes", routes}
		c.Nodes = append(c.Nodes, x)
		if err := x.Restart(ctx); err != nil {
			return nil, errors.Join(err, c.Stop())
		}
	}
	c.URL = "nats://" + strings.Join(clients[:n], ",")
	if err := c.ready(ctx); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// freePorts are addresses on which nobody listens now.
func freePorts(n int) (out []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { _ = l.Close() }() // it is only held until all are drawn
		out = append(out, l.Addr().String())
	}
	return out, nil
}

// ready waits until the servers have chosen who keeps the list of streams.
func (c *Cluster) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	nc, err := jsrun.Connect(jsrun.ConnectOptions{URL: c.URL, Name: "e2e-cluster", Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	for {
		try, done := context.WithTimeout(ctx, 2*time.Second)
		_, err := js.CreateOrUpdateStream(try, jetstream.StreamConfig{Name: "READINESS", Subjects: []string{"readiness"}, Replicas: len(c.Nodes), MaxBytes: 1 << 20})
		if err == nil {
			err = js.DeleteStream(try, "READINESS")
		}
		done()
		if err == nil {
			return nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("stack: the NATS cluster keeps no streams: %w", err)
		}
	}
}

// Leader is the index of the server that leads a stream.
func (c *Cluster) Leader(ctx context.Context, js jetstream.JetStream, stream string) (int, error) {
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return 0, err
	}
	info := s.CachedInfo()
	if info.Cluster == nil {
		return 0, fmt.Errorf("stack: stream %s is not kept by a cluster", stream)
	}
	return strconv.Atoi(strings.TrimPrefix(info.Cluster.Leader, "n"))
}

// Stop ends all servers and removes their stores.
func (c *Cluster) Stop() error {
	var errs []error
	for _, n := range c.Nodes {
		if n.cmd == nil {
			continue
		}
		_ = n.cmd.Process.Signal(syscall.SIGCONT)
		errs = append(errs, n.Stop())
	}
	return errors.Join(append(errs, os.RemoveAll(c.dir))...)
}
