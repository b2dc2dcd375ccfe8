// Command natsd is a plain NATS server with JetStream for tests that kill it and
// start it again on its store. It prints its URL, and ends with its parent. weir's
// streams are not made here: `weir up --nats URL` does that, as with any server.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/weir-dev/weir/services/proc"
	"github.com/weir-dev/weir/streams"
	"github.com/weir-dev/weir/streams/jsrun"
)

func main() {
	dir := flag.String("dir", "", "folder of the store")
	listen := flag.String("listen", "127.0.0.1:0", "address")
	flag.Parse()
	if err := run(*dir, *listen); err != nil {
		fmt.Fprintln(os.Stderr, "natsd:", err)
		os.Exit(1)
	}
}

func run(dir, listen string) error {
	ctx, stop := proc.Context()
	defer stop()
	s, err := jsrun.Embedded(jsrun.EmbeddedOptions{
		Dir: dir, Listen: listen, Topology: streams.Topology(streams.Options{}), Name: "natsd",
	})
	if err != nil {
		return err
	}
	fmt.Println(s.ClientURL())
	<-ctx.Done()
	s.Shutdown()
	s.WaitForShutdown()
	return nil
}
