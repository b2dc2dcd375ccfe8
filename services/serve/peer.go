package serve

import (
	"net"
	"os"
	"strconv"

	"github.com/weir-dev/weir/kvtier/peer"
)

// EnvPeerToken is what nodes must know to get KV blocks from each other. It is no flag,
// because every user of a machine can read the flags of its processes.
const EnvPeerToken = "WEIR_PEER_TOKEN"

func peerToken() string { return os.Getenv(EnvPeerToken) }

// peer is the address for other nodes; "off" means none.
func (o *Options) peer() string {
	if o.PeerAddr == "off" {
		return ""
	}
	return o.PeerAddr
}

// checkPeer refuses an address that the tier could only fail at, again and again.
func (o *Options) checkPeer(bad func(format string, args ...any)) {
	addr := o.peer()
	if addr == "" {
		return
	}
	host, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		bad("--peer-addr is %q, not an address with a port such as 10.0.0.5:7000, nor off", addr)
		return
	}
	// A name may stand for any address: the tier looks at what it listens on.
	ip := net.ParseIP(host)
	if peerToken() == "" && (host == "" || ip != nil && !ip.IsLoopback()) {
		bad("--peer-addr is %q, which other hosts can reach: whoever connects could read KV blocks; set a token in %s, or listen on 127.0.0.1", addr, EnvPeerToken)
	}
}

// peerGives and peerTakes show what moves between nodes, once it can.
func (h *host) peerGives(s *peer.Server) {
	if err := h.metrics.Gives(s.Stats); err != nil {
		h.log.Warn("blocks given to other nodes have no metrics", "error", err)
	}
}

func (h *host) peerTakes(c *peer.Client) {
	if err := h.metrics.Takes(c.Stats); err != nil {
		h.log.Warn("blocks of other nodes have no metrics", "error", err)
	}
}
