package hostmem

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// 100 blocks and a restart, also of a process that was killed.
func restartFindsAll(t *testing.T) { restarts(t, false) }

func nextDaemonFindsTheSame(t *testing.T) { restarts(t, true) }

func restarts(t *testing.T, killed bool) {
	dir := shortDir(t)
	d := startChild(t, "daemon", dir, "", 2<<20)
	c := attach(t, dir, "w")
	blocks := testChain("a", 100)
	mustPut(t, c, blocks...)
	if killed {
		d.kill()
	} else {
		_ = d.in.Close()
		_ = d.cmd.Wait()
	}
	last := startDaemon(t, dir, 2<<20)
	until(t, "connected", c.Connected)
	if s := stats(t, last); s.Sealed != 100 {
		t.Errorf("%d of 100 blocks are known", s.Sealed)
	}
	if _, n := load(attach(t, dir, "r"), blocks); n != 100 {
		t.Errorf("%d of 100 blocks are read", n)
	}
}

// After a restart new blocks are written over a memory that holds old ones.
func restartKeepsOldKeysRight(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir, 1<<20)
	c := attach(t, dir, "w")
	old := testChain("old", 100)
	mustPut(t, c, old...)
	_ = d.Close()
	d = startDaemon(t, dir, 1<<20)
	until(t, "connected", c.Connected)
	mustPut(t, c, testChain("new", c.Capacity()-50)...)
	bufs, n := load(c, old)
	for i := range n {
		if !hasPattern(bufs[i], old[i].Key) {
			t.Errorf("block %d has new bytes", i)
		}
	}
	if n == 100 || stats(t, d).Evictions == 0 {
		t.Errorf("%d old blocks, %d evictions: the test shows nothing", n, stats(t, d).Evictions)
	}
	checkTier(t, d)
}

// While no daemon runs, running clients go on and a new one waits for the next daemon.
func nodesJoinLater(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir, 1<<20)
	c := attach(t, dir, "w")
	blocks := testChain("a", 10)
	mustPut(t, c, blocks...)
	_ = d.Close()
	joined := make(chan error, 1)
	go func() {
		late, err := Attach(context.Background(), Options{Dir: dir, Writer: "late", Pool: testPool, BlockBytes: testBlock})
		if err == nil {
			err = errors.Join(err, late.Close())
		}
		joined <- err
	}()
	until(t, "it holds its lock and waits", func() bool {
		_, err := os.Stat(filepath.Join(dir, writersFolder, "late"))
		return err == nil
	})
	if _, n := load(c, blocks); n != 10 {
		t.Errorf("%d of 10 blocks are served meanwhile", n)
	}
	startDaemon(t, dir, 1<<20)
	if err := <-joined; err != nil {
		t.Error(err)
	}
}
