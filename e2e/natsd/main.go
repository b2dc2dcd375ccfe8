// Command natsd is a plain NATS server with JetStream for tests that kill it and
// start it again on its store. It prints its URL, and ends with its parent. weir's
// streams are not made here: `weir up --nats URL` does that, as with any server. With
// --routes it is one of a cluster.
package main

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/weir-dev/weir/services/proc"
	"github.com/weir-dev/weir/streams"
	"github.com/weir-dev/weir/streams/jsrun"
)

func main() {
	dir := flag.String("dir", "", "folder of the store")
	listen := flag.String("listen", "127.0.0.1:0", "address")
	name := flag.String("name", "natsd", "name of the server, its own in a cluster")
	clusterListen := flag.String("cluster-listen", "", "address for the other servers of a cluster")
	routes := flag.String("routes", "", "addresses of all servers of the cluster, with commas")
	flag.Parse()
	if err := run(*dir, *listen, *name, *clusterListen, *routes); err != nil {
		fmt.Fprintln(os.Stderr, "natsd:", err)
		os.Exit(1)
	}
}

func run(dir, listen, name, clusterListen, routes string) error {
	ctx, stop := proc.Context()
	defer stop()
	start := func() (*server.Server, error) {
		return jsrun.Embedded(jsrun.EmbeddedOptions{
			Dir: dir, Listen: listen, Topology: streams.Topology(streams.Options{}), Name: name,
		})
	}
	if routes != "" {
		start = func() (*server.Server, error) { return member(dir, listen, name, clusterListen, routes) }
	}
	s, err := start()
	if err != nil {
		return err
	}
	fmt.Println(s.ClientURL())
	<-ctx.Done()
	s.Shutdown()
	s.WaitForShutdown()
	return nil
}

// member starts one server of a cluster. It may come up alone: streams are there when
// most of the servers are.
func member(dir, listen, name, clusterListen, routes string) (*server.Server, error) {
	host, port, err := address(listen)
	chost, cport, cerr := address(clusterListen)
	if err := errors.Join(err, cerr); err != nil {
		return nil, err
	}
	var urls []*url.URL
	for _, r := range strings.Split(routes, ",") {
		urls = append(urls, &url.URL{Scheme: "nats-route", Host: r})
	}
	s, err := server.NewServer(&server.Options{
		ServerName: name, Host: host, Port: port, JetStream: true, StoreDir: dir, NoSigs: true, NoLog: true,
		JetStreamMaxMemory: 4 << 30, JetStreamMaxStore: 64 << 30, JetStreamLimits: server.JSLimitOpts{DefaultMaxConsumers: 20000},
		MaxPending: 64 << 20, WriteDeadline: 10 * time.Second,
		Cluster: server.ClusterOpts{Name: "natsd", Host: chost, Port: cport}, Routes: urls,
	})
	if err != nil {
		return nil, err
	}
	go s.Start()
	if !s.ReadyForConnections(30 * time.Second) {
		s.Shutdown()
		return nil, fmt.Errorf("server %s at %s was not ready within 30 s", name, listen)
	}
	return s, nil
}

func address(s string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(s)
	if err == nil {
		port, err = strconv.Atoi(text)
	}
	return host, port, err
}
