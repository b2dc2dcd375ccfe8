package tierchaos

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strconv"

	"github.com/weir-dev/weir/kvtier/hostmem"
)

// The program runs itself again in these roles. A child obeys lines on its standard
// input and writes JSON lines.
const (
	envRole   = "WEIR_TIERCHAOS_ROLE"
	envDir    = "WEIR_TIERCHAOS_DIR"
	envWriter = "WEIR_TIERCHAOS_WRITER"
	envClass  = "WEIR_TIERCHAOS_CLASS"
	envSeed   = "WEIR_TIERCHAOS_SEED"

	roleDaemon = "daemon"
	roleClient = "client"
)

// Child runs the program as a child of a run and ends it, if it is one. Programs
// and tests that call Run call it first.
func Child() {
	var err error
	switch os.Getenv(envRole) {
	case roleDaemon:
		err = daemonChild(os.Getenv(envDir))
	case roleClient:
		n, _ := strconv.Atoi(os.Getenv(envClass))
		seed, _ := strconv.ParseUint(os.Getenv(envSeed), 10, 64)
		err = clientChild(os.Getenv(envDir), os.Getenv(envWriter), classes[n%len(classes)], seed)
	default:
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "tierchaos:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// What a child of role daemon obeys.
const (
	cmdStats  = "stats"
	cmdCheck  = "check"
	cmdRemove = "remove"
)

// daemonReply answers each line.
type daemonReply struct {
	Pools []hostmem.PoolStats `json:"pools,omitempty"`
	Error string              `json:"error,omitempty"`
}

func daemonChild(dir string) error {
	d, err := hostmem.NewDaemon(hostmem.Config{Dir: dir, Bytes: arenaBytes, PoolBytes: poolBytes})
	if err != nil {
		return err
	}
	go func() {
		for range d.Events() { // as a tier process reads them
		}
	}()
	out := json.NewEncoder(os.Stdout)
	_ = out.Encode(daemonReply{})
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var r daemonReply
		var err error
		switch in.Text() {
		case cmdStats:
			r.Pools, err = d.Stats()
		case cmdCheck:
			err = d.CheckIntegrity()
		case cmdRemove:
			err = d.Remove()
		}
		if err != nil {
			r.Error = err.Error()
		}
		_ = out.Encode(r)
	}
	return d.Close()
}
