package badinput

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"github.com/weir-dev/weir/e2e/stack"
)

// crash is how a Go program or a C library ends when it must not.
var crash = regexp.MustCompile(`(?i)\bpanic|fatal|SIGSEGV|SIGABRT|\bgoroutine \d+ \[|GGML_ASSERT`)

// Crashes are the lines of a stack's logs that tell of a crash.
func Crashes(s *stack.Stack) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(s.Dir(), "logs", "*.log"))
	if err != nil {
		return nil, err
	}
	var out []string
	for _, path := range files {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		sc := bufio.NewScanner(f)
		sc.Buffer(make([]byte, 64<<10), 64<<20)
		for sc.Scan() {
			if crash.Match(sc.Bytes()) {
				out = append(out, fmt.Sprintf("%s: %.500s", filepath.Base(path), sc.Text()))
			}
		}
		err = sc.Err()
		_ = f.Close() // only read
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return out, nil
}
