package serve

import (
	"os"

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
