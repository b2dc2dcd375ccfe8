package workload

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
)

// ErrTrace is what errors about the content of a recorded trace wrap.
var ErrTrace = errors.New("workload: not a trace that can be replayed")

// Bounds of a recorded trace that is read.
const (
	MaxRecordLine  = 64 << 20 // bytes of one session
	MaxRecordBytes = 1 << 30  // bytes of the trace, uncompressed
	maxSeconds     = 366 * 86400
)

// Recorded is one model call as it was recorded. Times are milliseconds.
type Recorded struct {
	Took    int64 // server time; RecordedTook stands where it is absent
	Think   int64 // the client's wait before this call
	In, Out int32
	Prompt  []Run
	Tools   bool // a tool is called, as far as the stop reason says
}

// RecordedTook stands for a missing server time, milliseconds.
const RecordedTook = 6000

// Recording is the main agent of one recorded session.
type Recording struct {
	ID    string
	Calls []Recorded
	// SubAgents are the markers that were passed by: their calls are not replayed.
	SubAgents int
}

// Skipped counts what a reader passed by, so that it is no silent loss.
type Skipped struct {
	Empty     int // sessions without a call
	SubAgents int
	NoTook    int // calls without a server time
	NoThink   int // calls whose wait was derived from their start
}

// wekaCall is a request of the WEKA Claude Code traces, or the marker of a sub-agent.
// hash_runs is the run-length form of hash_ids; a file has one of the two.
type wekaCall struct {
	T     *float64   `json:"t"`
	Type  string     `json:"type"`
	In    *int64     `json:"in"`
	Out   *int64     `json:"out"`
	Runs  [][2]int64 `json:"hash_runs"`
	IDs   []int64    `json:"hash_ids"`
	Stop  string     `json:"stop"`
	Took  *float64   `json:"api_time"`
	Think *float64   `json:"think_time"`
}

type wekaSession struct {
	ID        string     `json:"id"`
	BlockSize int        `json:"block_size"`
	Scope     string     `json:"hash_id_scope"`
	Requests  []wekaCall `json:"requests"`
}

// ReadWeka reads WEKA's Claude Code traces (kv-cache-tester): one JSON object a line,
// one line a session, compressed by gzip or not. Calls of sub-agents are counted and
// left out. Errors wrap ErrTrace and name file, line, session and field.
func ReadWeka(name string, r io.Reader) ([]Recording, Skipped, error) {
	var skipped Skipped
	in, err := plain(name, r)
	if err != nil {
		return nil, skipped, err
	}
	var out []Recording
	seen := map[string]int{}
	for line := 1; ; line++ {
		text, err := readLine(in)
		if err == io.EOF && len(text) == 0 {
			break
		}
		if err != nil && err != io.EOF {
			return nil, skipped, fmt.Errorf("%w: %s:%d: %w", ErrTrace, name, line, err)
		}
		if len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		rec, err := readWekaSession(text, &skipped)
		if err != nil {
			return nil, skipped, fmt.Errorf("%w: %s:%d: %w", ErrTrace, name, line, err)
		}
		if before, ok := seen[rec.ID]; ok {
			return nil, skipped, fmt.Errorf("%w: %s:%d: session %q stands in line %d too; remove one of them", ErrTrace, name, line, rec.ID, before)
		}
		seen[rec.ID] = line
		if len(rec.Calls) == 0 {
			skipped.Empty++
			continue
		}
		out = append(out, rec)
	}
	if len(out) == 0 {
		return nil, skipped, fmt.Errorf("%w: %s: no session with a call in it (%d without); a session is one JSON object on one line", ErrTrace, name, skipped.Empty)
	}
	return out, skipped, nil
}

// plain unpacks r when it begins as gzip does.
func plain(name string, r io.Reader) (*bufio.Reader, error) {
	in := bufio.NewReaderSize(io.LimitReader(r, MaxRecordBytes), 1<<16)
	if magic, err := in.Peek(2); err != nil || magic[0] != 0x1f || magic[1] != 0x8b {
		return in, nil // an empty file is reported as one without sessions
	}
	z, err := gzip.NewReader(in)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrTrace, name, err)
	}
	return bufio.NewReaderSize(io.LimitReader(z, MaxRecordBytes), 1<<16), nil
}

// readLine returns the next line without its end.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > MaxRecordLine {
			return nil, fmt.Errorf("the line has more than %d bytes", MaxRecordLine)
		}
		if err != bufio.ErrBufferFull {
			return bytes.TrimSuffix(line, []byte{'\n'}), err
		}
	}
}

func readWekaSession(text []byte, skipped *Skipped) (Recording, error) {
	var s wekaSession
	if err := json.Unmarshal(text, &s); err != nil {
		return Recording{}, fmt.Errorf("%w; a session is one JSON object on one line", err)
	}
	switch {
	case s.ID == "":
		return Recording{}, errors.New(`no "id": the line is not a session of a WEKA trace`)
	case s.BlockSize != BlockTokens:
		return Recording{}, fmt.Errorf("session %q: block_size is %d, only %d can be replayed", s.ID, s.BlockSize, BlockTokens)
	case s.Scope != "" && s.Scope != "local" && s.Scope != "global":
		return Recording{}, fmt.Errorf("session %q: hash_id_scope is %q, known are local and global", s.ID, s.Scope)
	}
	rec := Recording{ID: s.ID}
	var before *wekaCall
	for i := range s.Requests {
		c := &s.Requests[i]
		if c.Type == "subagent" {
			rec.SubAgents++
			skipped.SubAgents++
			continue
		}
		call, err := c.read(s.Scope == "global")
		if err != nil {
			return Recording{}, fmt.Errorf("session %q: request %d: %w", s.ID, i, err)
		}
		if c.Took == nil {
			skipped.NoTook++
		}
		if c.Think == nil {
			skipped.NoThink++
			if before != nil {
				call.Think = max(0, milliseconds(*c.T-*before.T)-rec.Calls[len(rec.Calls)-1].Took)
			}
		}
		before = c
		rec.Calls = append(rec.Calls, call)
	}
	return rec, nil
}

// read checks a request. Absent times are not 0: Took has its default, and the
// caller derives Think.
func (c *wekaCall) read(global bool) (Recorded, error) {
	out := Recorded{Took: RecordedTook, Tools: c.Stop == "tool_use" || c.Stop == ""}
	switch {
	case c.T == nil:
		return out, errors.New("t: the start is missing; a replay needs the time of every call")
	case c.In == nil || c.Out == nil:
		return out, errors.New("in, out: the number of tokens is missing")
	case *c.In < 1 || *c.In > MaxTokens || *c.Out < 0 || *c.Out > MaxTokens:
		return out, fmt.Errorf("in, out: %d and %d tokens, allowed are 1 and 0 to %d", *c.In, *c.Out, MaxTokens)
	}
	for _, f := range [...]struct {
		name string
		v    *float64
		to   *int64
	}{{"t", c.T, nil}, {"api_time", c.Took, &out.Took}, {"think_time", c.Think, &out.Think}} {
		if f.v == nil {
			continue
		}
		if math.IsNaN(*f.v) || *f.v < 0 || *f.v > maxSeconds {
			return out, fmt.Errorf("%s: %v seconds", f.name, *f.v)
		}
		if f.to != nil {
			*f.to = milliseconds(*f.v)
		}
	}
	out.In, out.Out = int32(*c.In), int32(*c.Out)
	var err error
	out.Prompt, err = c.runs(global)
	return out, err
}

func milliseconds(seconds float64) int64 { return int64(math.Round(seconds * 1000)) }

// runs are the whole blocks of the prompt. The number of tokens is what the file says,
// never what its ids would be: corpora count a partial last block, or do not.
func (c *wekaCall) runs(global bool) ([]Run, error) {
	runs := c.Runs
	if len(runs) == 0 {
		for _, id := range c.IDs {
			if k := len(runs); k > 0 && runs[k-1][0]+runs[k-1][1] == id {
				runs[k-1][1]++
			} else {
				runs = append(runs, [2]int64{id, 1})
			}
		}
	}
	first, bound := int64(0), int64(Global)
	if global {
		first, bound = int64(Global), int64(Global)-1
	}
	n := int64(0)
	var out []Run
	for i, r := range runs {
		if r[0] < 0 || r[1] < 1 || r[1] > MaxTokens || r[0]+r[1] > bound {
			return nil, fmt.Errorf("hash_runs[%d]: the run [%d, %d] is not ids from 0 to %d", i, r[0], r[1], bound)
		}
		n += r[1]
		out = append(out, Run{From: int32(first + r[0]), N: int32(r[1])})
	}
	whole := *c.In / BlockTokens
	switch {
	case n == whole:
	case n == whole+1 && *c.In%BlockTokens > 0: // the last id is that of a partial block
		last := &out[len(out)-1]
		if last.N--; last.N == 0 {
			out = out[:len(out)-1]
		}
	default:
		return nil, fmt.Errorf("hash_ids: %s ids for %d tokens in blocks of %d, they should be %d", strconv.FormatInt(n, 10), *c.In, BlockTokens, whole)
	}
	return out, nil
}
