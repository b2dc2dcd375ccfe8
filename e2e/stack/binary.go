package stack

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/weir-dev/weir/gpuexec/llamacpp"
)

// EnvBinary names a weir binary to test instead of one built from this tree.
const EnvBinary = "WEIR_BIN"

// Root is the folder with go.work, above the working folder.
var Root = sync.OnceValues(func() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("stack: there is no go.work above the working folder; run this inside the repository")
		}
		dir = up
	}
})

// Binary is the path of the weir binary, built at the first call.
var Binary = sync.OnceValues(func() (string, error) {
	if b := os.Getenv(EnvBinary); b != "" {
		return filepath.Abs(b)
	}
	return buildMain("weir", "./services/weir")
})

// natsd is the path of the NATS server binary.
var natsd = sync.OnceValues(func() (string, error) { return buildMain("natsd", "./e2e/natsd") })

// buildMain builds a main package into a folder that all test processes of this
// user share, so that go build finds its own output up to date in all but the first.
// What runs is a copy named by its content: a stack starts its own binary again
// for each child, so that file must not change under it.
func buildMain(name, pkg string) (path string, err error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(root))
	dir, err := Shared(hex.EncodeToString(sum[:4]))
	if err != nil {
		return "", err
	}
	unlock, err := Lock(filepath.Join(dir, name+".lock"))
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	built := filepath.Join(dir, name)
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", built, pkg)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("stack: building %s: %w\n%s", pkg, err, out)
	}
	return keep(built)
}

// keep copies a binary to a name that depends on its content, and removes copies
// that nobody has started for a day.
func keep(built string) (string, error) {
	f, err := os.Open(built)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // only read
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	path := built + "-" + hex.EncodeToString(h.Sum(nil)[:6])
	now := time.Now()
	if _, err := os.Stat(path); err == nil {
		return path, os.Chtimes(path, now, now)
	}
	old, _ := filepath.Glob(built + "-*") // the pattern is well formed
	for _, o := range old {
		if st, err := os.Stat(o); err == nil && now.Sub(st.ModTime()) > 24*time.Hour {
			_ = os.Remove(o) // a leftover of the temporary folder, nothing depends on it
		}
	}
	return path, copyFile(f, path)
}

func copyFile(f *os.File, path string) (err error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	tmp := path + ".part"
	w, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o700)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	if err = errors.Join(err, w.Close()); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return os.Rename(tmp, path)
}

// Libraries is the folder of the llama.cpp libraries of this tree, or "" when
// they are not installed: then only the Go engine can be tested.
func Libraries() string {
	if d := os.Getenv("WEIR_LLAMA_LIB"); d != "" {
		return d
	}
	root, err := Root()
	if err != nil {
		return ""
	}
	d := llamacpp.DefaultDir(root)
	if _, err := os.Stat(d); err != nil {
		return ""
	}
	return d
}
