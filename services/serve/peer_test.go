package serve

import (
	"errors"
	"strings"
	"testing"
)

// TestPeerAddr: what the tier could not listen on is wrong use, before anything starts.
func TestPeerAddr(t *testing.T) {
	for _, c := range []struct{ addr, token, want string }{
		{"127.0.0.1:0", "", ""},
		{"[::1]:7000", "", ""},
		{"off", "", ""},
		{"0.0.0.0:7000", "secret", ""},
		{"localhost:0", "", ""},
		{"nonsense", "", `"nonsense"`},
		{"10.0.0.5", "", "with a port"},
		{"10.0.0.5:peer", "secret", "with a port"},
		{"10.0.0.5:70000", "secret", "with a port"},
		{"10.0.0.5:7000", "", EnvPeerToken},
		{"0.0.0.0:0", "", EnvPeerToken},
		{":7000", "", EnvPeerToken},
	} {
		t.Setenv(EnvPeerToken, c.token)
		o := Defaults()
		o.PeerAddr = c.addr
		err := o.Validate()
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.addr, err)
		case c.want != "" && (!errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %s", c.addr, err, c.want)
		}
	}
}
