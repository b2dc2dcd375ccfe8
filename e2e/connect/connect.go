package connect

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/weir-dev/weir/e2e/node"
	"github.com/weir-dev/weir/e2e/stack"
)

// Level is how closely the agent is connected.
type Level string

// The levels.
const (
	Nothing Level = "nothing" // a base URL, behind the proxy
	Session Level = "session" // a session header
	Events  Level = "events"  // and what the agent waits for
	Delta   Level = "delta"   // turns over NATS that continue the last result
)

// Levels are all levels, the loosest first.
func Levels() []Level { return []Level{Nothing, Session, Events, Delta} }

// Outcome is what one level yielded. Tokens and bytes are sums over all calls.
type Outcome struct {
	Level Level `json:"level"`
	// Lines that are to be written to make the program from that of level Nothing.
	Lines int `json:"lines"`
	Calls int `json:"calls"`
	// HitRate is the share of prompt tokens that were found in the cache.
	HitRate float64 `json:"hit_rate"`
	Prompt  int     `json:"prompt_tokens"`
	Cached  int     `json:"cached_tokens"`
	// Recomputed are prompt tokens that the session had computed before, as prompt
	// or as answer, and that were computed again.
	Recomputed int     `json:"recomputed_tokens"`
	TTFTP95    float64 `json:"ttft_ms_p95"`
	Bytes      int     `json:"bytes_sent"`
}

// Size of the load: sessions run at the same time, each for so many model calls.
type Size struct{ Sessions, Steps int }

// levelWait bounds one level.
const levelWait = 4 * time.Minute

// Run runs the levels, each on a stack of its own, so that none finds another's
// blocks. The engine is llama.cpp: the agent's tool calls are constrained.
func Run(ctx context.Context, size Size, emit func(*Outcome)) (out []Outcome, err error) {
	if stack.Libraries() == "" {
		return nil, errors.New("connect: the llama.cpp libraries are not installed; `make engine` installs them")
	}
	dir, err := node.Install(ctx, "e2e/connect/js")
	if err != nil {
		return nil, err
	}
	for _, level := range Levels() {
		o, err := one(ctx, dir, level, size)
		if err != nil {
			return out, fmt.Errorf("connect: level %s: %w", level, err)
		}
		out = append(out, *o)
		if emit != nil {
			emit(o)
		}
	}
	return out, nil
}

func one(ctx context.Context, dir string, level Level, size Size) (o *Outcome, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, levelWait, fmt.Errorf("it did not end within %s", levelWait))
	defer cancel()
	path, err := stack.ModelFile("small")
	if err != nil {
		return nil, err
	}
	s, err := stack.Launch(ctx, stack.Options{Args: []string{
		"--engine", "llama", "--model", path, "--prefill", "1", "--decode", "1", "--ctx", "16384", "--slots", "4", "--kv-mem", "1GiB",
	}})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	url := s.Ready.HTTP
	if level == Nothing {
		p, err := startProxy(url)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, p.Close()) }()
		url = p.URL
	}
	args := []string{url, s.Ready.NATS, strconv.Itoa(size.Steps)}
	for i := range size.Sessions {
		args = append(args, fmt.Sprintf("%s-%d", level, i))
	}
	printed, err := node.Run(ctx, dir, string(level)+".mjs", args...)
	if err != nil {
		return nil, errors.Join(err, errors.New(s.Logs(10)))
	}
	o, err = read(printed)
	if err != nil {
		return nil, err
	}
	if want := size.Sessions * size.Steps; o.Calls != want {
		return nil, fmt.Errorf("%d model calls, want %d", o.Calls, want)
	}
	o.Level = level
	o.Lines, err = lines(dir, level)
	return o, err
}

// call is a line that the program prints.
type call struct {
	Session    string  `json:"session"`
	Step       int     `json:"step"`
	Prompt     int     `json:"prompt"`
	Cached     int     `json:"cached"`
	Completion int     `json:"completion"`
	TTFTMS     float64 `json:"ttft_ms"`
	Bytes      int     `json:"bytes"`
}

func read(printed []byte) (*Outcome, error) {
	o := &Outcome{}
	before := map[string]int{} // tokens of the session's context that were computed
	var ttft []float64
	in := bufio.NewScanner(bytes.NewReader(printed))
	for in.Scan() {
		var c call
		if err := json.Unmarshal(in.Bytes(), &c); err != nil {
			return nil, fmt.Errorf("%q is not what the program should print: %w", in.Text(), err)
		}
		o.Calls++
		o.Prompt += c.Prompt
		o.Cached += c.Cached
		o.Bytes += c.Bytes
		o.Recomputed += max(0, min(before[c.Session], c.Prompt)-c.Cached)
		before[c.Session] = c.Prompt + c.Completion
		ttft = append(ttft, c.TTFTMS)
	}
	if err := in.Err(); err != nil {
		return nil, err
	}
	if o.Calls == 0 {
		return nil, errors.New("the program made no call")
	}
	slices.Sort(ttft)
	o.TTFTP95 = ttft[min(len(ttft)-1, len(ttft)*95/100)]
	o.HitRate = float64(o.Cached) / float64(o.Prompt)
	return o, nil
}

// lines counts the lines in which a level's program differs from the first one's.
func lines(dir string, level Level) (int, error) {
	a, err := os.ReadFile(filepath.Join(dir, string(Nothing)+".mjs"))
	if err != nil {
		return 0, err
	}
	b, err := os.ReadFile(filepath.Join(dir, string(level)+".mjs"))
	if err != nil {
		return 0, err
	}
	return changed(code(a), code(b)), nil
}

// code is the lines of a program without comments and empty lines.
func code(program []byte) (out []string) {
	for line := range bytes.Lines(program) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && !bytes.HasPrefix(line, []byte("//")) {
			out = append(out, string(line))
		}
	}
	return out
}

// changed counts lines that must be written to make b of a: those of b that are not
// in the longest common subsequence.
func changed(a, b []string) int {
	common := make([][]int, len(a)+1)
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	return len(b) - common[0][0]
}
