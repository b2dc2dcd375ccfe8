package serve

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/weir-dev/weir/streams"
	"github.com/weir-dev/weir/streams/jsrun"
)

// TestSemantic: whatever the linker was given, NATS takes it as a service's version.
func TestSemantic(t *testing.T) {
	s, err := jsrun.Embedded(jsrun.EmbeddedOptions{Dir: t.TempDir(), Topology: streams.Topology(streams.Options{})})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	nc, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	for in, want := range map[string]string{
		"v0.2.0":                             "0.2.0",
		"v0.2.0-7-g377ee92-dirty":            "0.2.0-7-g377ee92-dirty",
		"v0.0.0-20261201050000-377ee92aaaaa": "0.0.0-20261201050000-377ee92aaaaa",
		"377ee92-dirty":                      "0.1.0+377ee92-dirty",
		"0377ee9":                            "0.1.0+0377ee9",
		"dev":                                "0.1.0+dev",
		"feature/x y":                        "0.1.0+feature-x-y",
		"1.2.3-01":                           "0.1.0+1-2-3-01",
		"///":                                "0.1.0",
		"1.2":                                "0.1.0+1-2",
	} {
		got := semantic(in)
		if got != want {
			t.Errorf("%q gives %q, want %q", in, got, want)
		}
		svc, err := micro.AddService(nc, micro.Config{Name: "x", Version: got})
		if err != nil {
			t.Errorf("%q gives %q: %v", in, got, err)
			continue
		}
		if err := svc.Stop(); err != nil {
			t.Error(err)
		}
	}
	if got := Version(); !semver.MatchString(got) {
		t.Errorf("this build is %q", got)
	}
}
