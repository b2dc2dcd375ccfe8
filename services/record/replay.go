package record

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/weir-dev/weir/schemas"
)

// Build makes the actor that a recording is of, as it was when it began.
type Build func(h Header) (schemas.Actor, error)

// Result says how a replay went.
type Result struct {
	Actor   string `json:"actor"`
	Cell    string `json:"cell"`
	Epoch   uint64 `json:"epoch"`
	Weir    string `json:"weir"`  // version that recorded
	Parts   int    `json:"parts"` // files
	Inputs  int    `json:"inputs"`
	Outputs int    `json:"outputs"`
	Bytes   int64  `json:"output_bytes"`
	FromNS  int64  `json:"from_ns"`
	ToNS    int64  `json:"to_ns"`
	// Identical: every output, and the digest of every state that was saved, is that of
	// the recording, byte for byte.
	Identical bool        `json:"identical"`
	First     *Difference `json:"first,omitempty"`
	// Cut says why the recording ends before the actor did; empty when it does not.
	Cut string `json:"cut,omitempty"`
}

// Difference is the first step whose outputs differ.
type Difference struct {
	No       int      `json:"no"` // of the line, from 1, headers not counted
	AtNS     int64    `json:"at_ns"`
	In       *Message `json:"in,omitempty"`
	Output   int      `json:"output"` // index of the output that differs
	Recorded string   `json:"recorded"`
	Replayed string   `json:"replayed"`
}

// Find lists the first parts of the recordings below path: a folder, or a part. With
// actor only those of that actor count.
func Find(path, actor string) ([]string, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !st.IsDir() {
		base := strings.TrimSuffix(path, suffix)
		if i := strings.LastIndexByte(base, '-'); i > 0 && base != path {
			return []string{base[:i] + "-0001" + suffix}, nil
		}
		return nil, fmt.Errorf("%s is no part of a recording: its name is not <actor>-<cell>-<epoch>-<part>%s", path, suffix)
	}
	all, err := filepath.Glob(filepath.Join(path, "*-0001"+suffix))
	if err != nil {
		return nil, err
	}
	out := all[:0]
	for _, f := range all {
		if actor == "" || strings.HasPrefix(filepath.Base(f), actor+"-") {
			out = append(out, f)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s holds no recording%s; they are made with --record", path, named(" of the ", actor))
	}
	sort.Strings(out)
	return out, nil
}

func named(before, v string) string {
	if v == "" {
		return ""
	}
	return before + v
}

// Replay feeds a recording, whose first part is named, to a new actor and compares
// what it answers. It stops at the first difference: what follows it would follow from it.
func Replay(first string, build Build) (*Result, error) {
	r := &reader{base: strings.TrimSuffix(first, "-0001"+suffix)}
	defer r.close()
	h, err := r.open()
	if err != nil {
		return nil, err
	}
	actor, err := build(h)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", first, err)
	}
	res := &Result{Actor: h.Actor, Cell: h.Cell, Epoch: h.Epoch, Weir: h.Weir}
	for {
		l, err := r.line()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				return res, err
			}
			res.Parts, res.Identical = r.part, res.First == nil
			if r.cut != "" {
				res.Cut = r.cut
			}
			return res, nil
		}
		if l.Stopped != "" {
			res.Cut = l.Stopped
			continue
		}
		if res.FromNS == 0 {
			res.FromNS = l.T
		}
		res.ToNS = l.T
		if res.First, err = res.step(actor, l); err != nil {
			return res, fmt.Errorf("line %d: %w", r.no, err)
		}
		if res.First != nil {
			res.First.No, res.First.AtNS, res.First.In, res.Parts = r.no, l.T, l.In, r.part
			return res, nil
		}
	}
}

// step does one line and compares.
func (res *Result) step(a schemas.Actor, l *Line) (*Difference, error) {
	switch {
	case l.Restore != nil:
		return nil, a.Restore(*l.Restore)
	case l.Snapshot != "":
		b, err := a.Snapshot(nil)
		if err != nil {
			return nil, err
		}
		if got := digest(b); got != l.Snapshot {
			return &Difference{Recorded: "state " + l.Snapshot, Replayed: "state " + got}, nil
		}
		return nil, nil
	case l.In == nil:
		return nil, errors.New("it holds no message")
	}
	in, err := l.In.unpack()
	if err != nil {
		return nil, err
	}
	res.Inputs++
	outs, err := packAll(a.Step(schemas.Time(l.T), &in, nil))
	if err != nil {
		return nil, err
	}
	for i := range max(len(outs), len(l.Out)) {
		was, is := text(l.Out, i), text(outs, i)
		if was != is {
			return &Difference{Output: i, Recorded: was, Replayed: is}, nil
		}
		res.Outputs++
		res.Bytes += int64(len(is))
	}
	return nil, nil
}

// text is an output as the recording writes it; "" when there is none.
func text(ms []Message, i int) string {
	if i >= len(ms) {
		return ""
	}
	b, err := json.Marshal(&ms[i])
	if err != nil {
		return "unreadable: " + err.Error()
	}
	return string(b)
}

// reader reads the parts of one recording in order.
type reader struct {
	base string
	part int
	no   int
	f    *os.File
	b    *bufio.Reader
	cut  string
}

// maxLine bounds a line: a message with what came of it.
const maxLine = 256 << 20

// open begins the next part; io.EOF when there is none.
func (r *reader) open() (Header, error) {
	r.close()
	var h Header
	name := fmt.Sprintf("%s-%04d%s", r.base, r.part+1, suffix)
	f, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) && r.part > 0 {
		return h, io.EOF
	}
	if err != nil {
		return h, err
	}
	r.f = f
	z, err := gzip.NewReader(f)
	if err != nil {
		return h, fmt.Errorf("%s: %w", name, err)
	}
	r.b = bufio.NewReaderSize(z, 1<<20)
	b, err := r.read()
	if err != nil {
		return h, fmt.Errorf("%s: its first line cannot be read: %w", name, err)
	}
	if err := json.Unmarshal(b, &h); err != nil || h.Record != Version || h.Actor == "" {
		return h, fmt.Errorf("%s: no recording of version %d", name, Version)
	}
	if r.part++; h.Part != r.part || h.FirstNo != r.no+1 {
		return h, fmt.Errorf("%s is part %d from line %d on, part %d from line %d on is needed", name, h.Part, h.FirstNo, r.part, r.no+1)
	}
	return h, nil
}

func (r *reader) close() {
	if r.f != nil {
		_ = r.f.Close() // only read
		r.f = nil
	}
}

// read returns one line without its end. A part that a kill cut short ends with
// io.ErrUnexpectedEOF.
func (r *reader) read() ([]byte, error) {
	var out []byte
	for {
		b, err := r.b.ReadSlice('\n')
		if len(out)+len(b) > maxLine {
			return nil, fmt.Errorf("a line has more than %d bytes", maxLine)
		}
		out = append(out, b...)
		switch {
		case err == nil:
			return bytes.TrimSuffix(out, []byte("\n")), nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(out) > 0:
			return nil, io.ErrUnexpectedEOF
		default:
			return nil, err
		}
	}
}

// line returns the next line, over parts.
func (r *reader) line() (*Line, error) {
	for {
		b, err := r.read()
		switch {
		case errors.Is(err, io.ErrUnexpectedEOF):
			// The process was killed. Another part cannot follow.
			r.cut = fmt.Sprintf("part %d ends in mid-line: its process was killed", r.part)
			return nil, io.EOF
		case errors.Is(err, io.EOF):
			if _, err := r.open(); err != nil {
				return nil, err
			}
			continue
		case err != nil:
			return nil, fmt.Errorf("part %d, behind line %d: %w", r.part, r.no, err)
		}
		l := &Line{}
		d := json.NewDecoder(bytes.NewReader(b))
		d.DisallowUnknownFields()
		if err := d.Decode(l); err != nil {
			return nil, fmt.Errorf("part %d, line %d: %w", r.part, r.no+1, err)
		}
		if l.Stopped == "" {
			r.no++
		}
		return l, nil
	}
}

// Span is the time that a recording covers.
func (res *Result) Span() time.Duration { return time.Duration(res.ToNS - res.FromNS) }
