package infer

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-dev/weir/kvtier/branch"
)

// run is [first id, number of ids] of consecutive KV block ids.
type run [2]int32

// wekaRequest is one model call of the WEKA Claude Code traces in run-length form,
// or the marker of a sub-agent, which holds that agent's calls.
type wekaRequest struct {
	T           float64  `json:"t"` // seconds from the start of the session, or of the sub-agent
	Type        string   `json:"type"`
	Model       string   `json:"model"`
	In          int      `json:"in"`
	Out         int      `json:"out"`
	Runs        []run    `json:"hash_runs"`
	InputTypes  []string `json:"input_types"`
	OutputTypes []string `json:"output_types"`
	Stop        string   `json:"stop"`
	APITime     *float64 `json:"api_time"`

	ToolTokens   int           `json:"tool_tokens"`
	SystemTokens int           `json:"system_tokens"`
	Requests     []wekaRequest `json:"requests"`
}

// wekaSession is one line of the file.
type wekaSession struct {
	ID           string        `json:"id"`
	BlockSize    int           `json:"block_size"`
	ToolTokens   int           `json:"tool_tokens"`
	SystemTokens int           `json:"system_tokens"`
	Requests     []wekaRequest `json:"requests"`
}

// number of the session in its id, trace_NNNN.
func (s *wekaSession) number() (int, error) {
	return strconv.Atoi(strings.TrimPrefix(s.ID, "trace_"))
}

// readWeka calls each for every session of the file.
func readWeka(path string, each func(*wekaSession) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	d := json.NewDecoder(bufio.NewReaderSize(z, 1<<20))
	for line := 1; ; line++ {
		var s wekaSession
		if err := d.Decode(&s); err == io.EOF {
			return nil
		} else if err != nil {
			return fmt.Errorf("%s: session %d: %w", path, line, err)
		}
		if s.BlockSize <= 0 {
			return fmt.Errorf("%s: session %s: block size %d", path, s.ID, s.BlockSize)
		}
		if err := each(&s); err != nil {
			return fmt.Errorf("%s: session %s: %w", path, s.ID, err)
		}
	}
}

// call is a request on the one stream of its session. What the forest may see is
// items, at and until; line and first are for the labels.
type call struct {
	*wekaRequest
	at, until float64 // seconds from the start of the session
	lead      int     // blocks of system prompt and tools
	blocks    int
	line      int // 0 is the main agent, others are sub-agents
	first     bool
	items     []branch.Item
}

// apiTime stands for a missing server time, seconds; the median of the recorded
// ones.
const apiTime = 6.1

// stream merges the main agent and its sub-agents in the order of time.
func (s *wekaSession) stream() []*call {
	var calls []*call
	lines := 1
	add := func(r *wekaRequest, base float64, line, lead int, first bool) {
		c := &call{wekaRequest: r, at: base + r.T, line: line, lead: lead, first: first}
		took := apiTime
		if r.APITime != nil {
			took = *r.APITime
		}
		c.until = c.at + took
		for _, r := range r.Runs {
			c.blocks += int(r[1])
		}
		calls = append(calls, c)
	}
	first := true
	for i := range s.Requests {
		r := &s.Requests[i]
		if r.Type != "subagent" {
			add(r, 0, 0, (s.ToolTokens+s.SystemTokens)/s.BlockSize, first)
			first = false
			continue
		}
		for j := range r.Requests {
			add(&r.Requests[j], r.T, lines, (r.ToolTokens+r.SystemTokens)/s.BlockSize, j == 0)
		}
		lines++
	}
	slices.SortStableFunc(calls, func(a, b *call) int { return cmp.Compare(a.at, b.at) })
	s.cut(calls)
	return calls
}

// cut turns each request's runs into items. An item is a range of ids that no
// request of the session parts, so that equal items are equal blocks and a request
// has few of them: about as many as it has messages that entered one by one.
func (s *wekaSession) cut(calls []*call) {
	var cuts []int32
	for _, c := range calls {
		pos := 0
		for _, r := range c.Runs {
			cuts = append(cuts, r[0], r[0]+r[1])
			if pos < c.lead && c.lead < pos+int(r[1]) {
				cuts = append(cuts, r[0]+int32(c.lead-pos))
			}
			pos += int(r[1])
		}
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	roles := map[int32]branch.Role{} // of the ranges seen so far
	last := map[int]*call{}
	for _, c := range calls {
		role := newRole(c, last[c.line])
		last[c.line] = c
		pos := 0
		for _, r := range c.Runs {
			i, _ := slices.BinarySearch(cuts, r[0])
			for id, end := r[0], r[0]+r[1]; id < end; i++ {
				n := cuts[i+1] - id
				it := branch.Item{Size: int(n) * s.BlockSize}
				binary.LittleEndian.PutUint32(it.Digest[:], uint32(id))
				binary.LittleEndian.PutUint32(it.Digest[4:], uint32(n))
				known := false
				switch it.Role, known = roles[id]; {
				case known:
				case pos < c.lead:
					it.Role = branch.System
				default:
					it.Role = role
				}
				roles[id] = it.Role
				c.items = append(c.items, it)
				id += n
				pos += int(n)
			}
		}
	}
}

// newRole is the role given to a request's blocks that were not seen before. A
// service sees the role of every message; the trace says only which types of content
// are new. Tool results and thinking stand behind or in an answer of the model, and
// so does all that extends the request before on the same line.
func newRole(c, before *call) branch.Role {
	answered := before != nil && common(before.Runs, c.Runs) == before.blocks
	if answered || slices.ContainsFunc(c.InputTypes, func(t string) bool { return t != "text" }) {
		return branch.Assistant
	}
	return branch.User
}

// common is how many leading blocks two requests share.
func common(a, b []run) int {
	n := 0
	for i, j, x, y := 0, 0, int32(0), int32(0); i < len(a) && j < len(b) && a[i][0]+x == b[j][0]+y; {
		k := min(a[i][1]-x, b[j][1]-y)
		n += int(k)
		if x += k; x == a[i][1] {
			i, x = i+1, 0
		}
		if y += k; y == b[j][1] {
			j, y = j+1, 0
		}
	}
	return n
}

// wekaSteps finds the steps of a session: an answer, by its stop reason and types,
// and the new content of the call that extends it. Steps that are events of another
// kind, and last calls, say nothing.
func wekaSteps(calls []*call, labels []label) []step {
	var out []step
	for i, l := range labels {
		if l.kind != branch.Continue || l.prev < 0 || len(calls[i].InputTypes) == 0 {
			continue
		}
		a := calls[l.prev]
		out = append(out, step{
			calls: a.Stop == "tool_use" || slices.Contains(a.OutputTypes, "tool_use"),
			tool:  slices.Contains(calls[i].InputTypes, "tool_result"),
		})
	}
	return out
}
