package disk

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// The tests of this file run this binary again as a process of its own: one that is
// killed, or that may write only so much.
const (
	envChild = "WEIR_TEST_DISK_CHILD"
	envDir   = "WEIR_TEST_DISK_DIR"
)

func TestMain(m *testing.M) {
	switch os.Getenv(envChild) {
	case "":
		os.Exit(m.Run())
	case "writer":
		writer(os.Getenv(envDir))
	case "limited":
		limited(os.Getenv(envDir))
	}
}

const (
	childBlock    = 64 << 10
	childCapacity = 4 << 20
)

// writer writes blocks without end and names each one that is written.
func writer(dir string) {
	s, err := Open(Config{Dir: dir, Bytes: childCapacity})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	blocks := chain("killed", 200)
	for i := 0; ; i++ {
		if _, err := s.Put(item(testPool, blocks[i%len(blocks)], childBlock, int64(i))); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		fmt.Println("put", i)
	}
}

// limited is a process whose files may have 1 MiB: a larger segment cannot be made.
func limited(dir string) {
	signal.Ignore(syscall.SIGXFSZ)
	lim := unix.Rlimit{Cur: 1 << 20, Max: 1 << 20}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &lim); err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	s, err := Open(Config{Dir: dir, Bytes: 64 << 20, SegmentBytes: 8 << 20})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	_, err = s.Put(item(testPool, chain("a", 1)[0], childBlock, 1))
	_, again := s.Put(item(testPool, chain("b", 1)[0], childBlock, 1))
	fmt.Println(errors.Is(err, ErrOff), errors.Is(again, ErrOff), s.Stats().Off != "", s.Stats().Used, s.CheckIntegrity())
	os.Exit(0)
}

func child(t *testing.T, what, dir string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), exe)
	c.Env = append(os.Environ(), envChild+"="+what, envDir+"="+dir)
	return c
}

// A writer that is killed at any moment leaves whole blocks: each is read as it was
// written, and all that fit are there.
func TestKilledWriter(t *testing.T) {
	dir := t.TempDir()
	blocks := chain("killed", 200)
	for round := range 6 {
		c := child(t, "writer", dir)
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		sc := bufio.NewScanner(out)
		for n := 0; n < 70+37*round && sc.Scan(); n++ {
			if strings.HasPrefix(sc.Text(), "error") {
				t.Fatal(sc.Text())
			}
		}
		_ = c.Process.Kill()
		_ = c.Wait()
		s := open(t, dir, childCapacity)
		found := 0
		for i, b := range blocks {
			got := get(t, s, testPool, childBlock, b)
			if got == nil {
				continue
			}
			if found++; !bytes.Equal(got, content(testPool, b.Key, childBlock)) {
				t.Fatalf("round %d: block %d is not what was written", round, i)
			}
		}
		if st := s.Stats(); found < 40 || found != st.Blocks || st.Torn > 1 {
			t.Fatalf("round %d: %d blocks are found; %+v", round, found, st)
		}
		check(t, s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A disk that refuses is switched off, once and for all, and leaves nothing half made.
func TestFileSizeLimit(t *testing.T) {
	dir := t.TempDir()
	out, err := child(t, "limited", dir).CombinedOutput()
	if err != nil || string(out) != "true true true 0 <nil>\n" {
		t.Fatalf("%s, %v", out, err)
	}
	if names := mustList(t, dir); len(names) != 1 {
		t.Errorf("left behind: %v", names)
	}
}

// A filesystem that is full before the budget is reached costs the rest of the budget.
func TestFullFilesystem(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
		t.Skipf("no tmpfs can be mounted here: %v", err)
	}
	defer func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	s := open(t, dir, 64<<20, func(c *Config) { c.SegmentBytes = 512 << 10 })
	blocks := chain("a", 100)
	for i, b := range blocks {
		if _, err := s.Put(item(testPool, b, childBlock, int64(i))); err != nil {
			t.Fatal(err)
		}
	}
	st := s.Stats()
	if !st.Full || st.Off != "" || st.Blocks < 14 || st.Replaced == 0 {
		t.Errorf("%+v", st)
	}
	check(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, 64<<20, func(c *Config) { c.SegmentBytes = 4 << 20 }) // the pool goes on with the cut that is there
	if n := s.Stats().Blocks; n != st.Blocks {
		t.Errorf("%d blocks after a restart, %d before", n, st.Blocks)
	}
	check(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// Not a single segment fits: the disk is off.
func TestNoRoomAtAll(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=128k"); err != nil {
		t.Skipf("no tmpfs can be mounted here: %v", err)
	}
	defer func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	s := open(t, dir, 64<<20)
	if _, err := s.Put(item(testPool, chain("a", 1)[0], childBlock, 1)); !errors.Is(err, ErrOff) {
		t.Errorf("%v, want ErrOff", err)
	}
	if st := s.Stats(); st.Off == "" || st.Used != 0 {
		t.Errorf("%+v", st)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// A folder that cannot be written is an error at the start.
func TestUnwritableFolder(t *testing.T) {
	file := t.TempDir() + "/file"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{Dir: file + "/spill", Bytes: 1 << 20}); err == nil {
		t.Error("a folder below a file was opened")
	}
}
