package tier

import (
	"fmt"
	"net"
	"os"

	"github.com/weir-dev/weir/kvtier/peer"
)

// givePeers lets other nodes read this node's memory. addr is where they find it; both
// are empty when the node gives nothing.
func givePeers(cfg Config) (srv *peer.Server, addr string, err error) {
	if cfg.Peer == "" {
		return nil, "", nil
	}
	srv, err = peer.Serve(peer.ServerConfig{Dir: cfg.Dir, Addr: cfg.Peer, Token: cfg.PeerToken})
	if err != nil {
		return nil, "", fmt.Errorf("giving KV blocks to other nodes: %w", err)
	}
	if addr, err = reachable(srv.Addr(), os.Hostname); err != nil {
		closePeers(srv)
		return nil, "", fmt.Errorf("giving KV blocks to other nodes: %w", err)
	}
	if cfg.Gives != nil {
		cfg.Gives(srv)
	}
	return srv, addr, nil
}

// reachable is what other hosts connect to: a server that listens on every address of
// the host is found by the host's name.
func reachable(addr string, name func() (string, error)) (string, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", err
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsUnspecified() {
		return addr, nil
	}
	if host, err = name(); err != nil {
		return "", err
	}
	return net.JoinHostPort(host, port), nil
}

func closePeers(srv *peer.Server) {
	if srv != nil {
		_ = srv.Close() // it only gave; nothing is lost
	}
}
