package serve

import "os"

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
