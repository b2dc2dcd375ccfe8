package jsrun

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
)

// bus is a server with one client.
type bus struct {
	t    *testing.T
	topo []streams.Stream
	srv  *server.Server
	nc   *nats.Conn
	js   jetstream.JetStream
}

func newBus(t *testing.T, dir string, topo []streams.Stream) *bus {
	t.Helper()
	srv, err := Embedded(EmbeddedOptions{Dir: dir, Topology: topo})
	if err != nil {
		t.Fatal(err)
	}
	b := &bus{t: t, topo: topo, srv: srv}
	if b.nc, err = Connect(ConnectOptions{Server: srv, Name: "test"}); err != nil {
		t.Fatal(err)
	}
	if b.js, err = jetstream.New(b.nc); err != nil {
		t.Fatal(err)
	}
	if err := Provision(t.Context(), b.js, topo); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bus) close() {
	b.nc.Close()
	b.srv.Shutdown()
	b.srv.WaitForShutdown()
}

func TestProvisionIsIdempotent(t *testing.T) {
	bubble(t, func(t *testing.T, b *bus) {
		if err := Provision(t.Context(), b.js, b.topo); err != nil {
			t.Fatal(err)
		}
	})
}

func TestProvisionRefusesOtherSettings(t *testing.T) {
	bubble(t, func(t *testing.T, b *bus) {
		other := streams.Topology(streams.Options{MaxBytes: map[string]int64{streams.Agent: 5 << 20, streams.Done: 6 << 20}})
		err := Provision(t.Context(), b.js, other)
		if !errors.Is(err, ErrSettings) {
			t.Fatal(err)
		}
		for _, want := range []string{"AGENT: max_bytes is 1073741824, wanted 5242880", "DONE: max_bytes", "nats stream edit"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q lacks %q", err, want)
			}
		}
	})
}

func TestProvisionRefusesServers(t *testing.T) {
	t.Run("without JetStream", func(t *testing.T) {
		virtual(t, func(t *testing.T) {
			srv, err := server.NewServer(&server.Options{DontListen: true, NoSigs: true, NoLog: true})
			if err != nil {
				t.Fatal(err)
			}
			go srv.Start()
			srv.ReadyForConnections(time.Minute)
			nc, err := nats.Connect("", nats.InProcessServer(srv))
			if err != nil {
				t.Fatal(err)
			}
			js, err := jetstream.New(nc)
			if err != nil {
				t.Fatal(err)
			}
			if err := Provision(t.Context(), js, streams.Topology(streams.Options{})); !errors.Is(err, ErrNoJetStream) {
				t.Errorf("%v", err)
			}
			nc.Close()
			srv.Shutdown()
			srv.WaitForShutdown()
		})
	})
	t.Run("too small", func(t *testing.T) {
		dir := t.TempDir()
		virtual(t, func(t *testing.T) {
			b := newBus(t, dir, streams.Topology(streams.Options{Scale: 0.001}))
			defer b.close()
			big := streams.Topology(streams.Options{Scale: 0.001, MaxBytes: map[string]int64{streams.Agent: 8 << 40}})
			if err := b.js.DeleteStream(t.Context(), streams.Agent); err != nil {
				t.Fatal(err)
			}
			err := Provision(t.Context(), b.js, big)
			if !errors.Is(err, ErrNoRoom) || !strings.Contains(err.Error(), "AGENT") {
				t.Errorf("%v", err)
			}
		})
	})
	t.Run("old", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go oldServer(l)
		nc, err := nats.Connect("nats://" + l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		err = Provision(t.Context(), js, streams.Topology(streams.Options{}))
		if !errors.Is(err, ErrServerTooOld) || !strings.Contains(err.Error(), "2.9.11") {
			t.Errorf("%v", err)
		}
	})
}

// oldServer speaks just enough of the protocol to say its version.
func oldServer(l net.Listener) {
	c, err := l.Accept()
	if err != nil {
		return
	}
	defer c.Close()
	fmt.Fprintf(c, "INFO {\"server_id\":\"x\",\"version\":\"2.9.11\",\"headers\":true,\"max_payload\":1048576}\r\n")
	buf := make([]byte, 4096)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		if strings.Contains(string(buf[:n]), "PING") {
			fmt.Fprint(c, "PONG\r\n")
		}
	}
}

func TestVersions(t *testing.T) {
	f := func(have string, want bool) {
		t.Helper()
		if atLeast(have, MinServer) != want {
			t.Errorf("%s", have)
		}
	}
	f("2.11.0", true)
	f("2.15.3", true)
	f("2.11.0-RC.1", true)
	f("2.10.27", false)
	f("3.0.0", true)
	f("", false)
	f("x.y.z", false)
}

func TestStoredSubjectIsWhatTheServerStores(t *testing.T) {
	bubble(t, func(t *testing.T, b *bus) {
		for i := range 40 {
			pub := schemas.AgentSubject(fmt.Sprintf("tenant%d", i%3), fmt.Sprintf("s-%d", i), schemas.EventTurn)
			ack, err := b.js.Publish(t.Context(), pub, []byte("{}"))
			if err != nil {
				t.Fatal(err)
			}
			st, err := b.js.Stream(t.Context(), streams.Agent)
			if err != nil {
				t.Fatal(err)
			}
			m, err := st.GetMsg(t.Context(), ack.Sequence)
			if err != nil {
				t.Fatal(err)
			}
			if m.Subject != streams.StoredSubject(pub) {
				t.Fatalf("%s is stored as %s, not %s", pub, m.Subject, streams.StoredSubject(pub))
			}
		}
	})
}

func TestEmbeddedErrors(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := Embedded(EmbeddedOptions{Dir: t.TempDir(), Listen: l.Addr().String()}); !errors.Is(err, ErrListen) || !strings.Contains(err.Error(), "in use") {
		t.Errorf("port in use: %v", err)
	}
	for _, a := range []string{"nonsense", "host:99999", "h:x"} {
		if _, err := Embedded(EmbeddedOptions{Dir: t.TempDir(), Listen: a}); !errors.Is(err, ErrConfig) {
			t.Errorf("%s: %v", a, err)
		}
	}
	if _, err := Embedded(EmbeddedOptions{}); !errors.Is(err, ErrConfig) {
		t.Errorf("no folder: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Embedded(EmbeddedOptions{Dir: filepath.Join(file, "sub")}); !errors.Is(err, ErrListen) {
		t.Errorf("folder below a file: %v", err)
	}
	if _, err := Connect(ConnectOptions{URL: "nats://127.0.0.1:1"}); err == nil {
		t.Error("connected to nothing")
	}
}

func TestEmbeddedListens(t *testing.T) {
	s, err := Embedded(EmbeddedOptions{Dir: t.TempDir(), Listen: "127.0.0.1:0", SyncAlways: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.WaitForShutdown()
	defer s.Shutdown()
	nc, err := Connect(ConnectOptions{URL: s.ClientURL()})
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := Provision(ctx, js, streams.Topology(streams.Options{Scale: 0.001})); err != nil {
		t.Fatal(err)
	}
}

func TestFitDisk(t *testing.T) {
	full, _ := streams.Totals(streams.Topology(streams.Options{}))
	free := func(n int64) func(string) (int64, error) { return func(string) (int64, error) { return n, nil } }
	for _, room := range []int64{10 * full, full, full / 10, 200 << 20, 40 << 20} {
		dir := t.TempDir()
		o, err := fitDisk(dir, streams.Options{MaxBytes: map[string]int64{streams.Plan: 2 << 20}}, free(room))
		if err != nil {
			t.Fatal(err)
		}
		topo := streams.Topology(o)
		if err := streams.Check(topo); err != nil {
			t.Error(err)
		}
		got, _ := streams.Totals(topo)
		if got > int64(float64(room)*diskShare) || room > 2*full && got < full-(64<<20) {
			t.Errorf("with %d MiB free the streams take %d MiB", room>>20, got>>20)
		}
		again, err := fitDisk(dir, streams.Options{}, free(1))
		if err != nil || again.MaxBytes[streams.Agent] != o.MaxBytes[streams.Agent] {
			t.Errorf("the next start chooses others: %v", err)
		}
	}
	dir := t.TempDir()
	if _, err := fitDisk(dir, streams.Options{}, free(10<<20)); !errors.Is(err, ErrNoRoom) || !strings.Contains(err.Error(), "7 MiB") {
		t.Errorf("no room: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, limitsFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := FitDisk(dir, streams.Options{}); !errors.Is(err, ErrConfig) {
		t.Errorf("damaged file: %v", err)
	}
	if o, err := FitDisk(t.TempDir(), streams.Options{}); err != nil || o.MaxBytes[streams.Agent] == 0 {
		t.Errorf("%v", err)
	}
}
