package erase

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/streams"
	"github.com/weir-dev/weir/streams/jsrun"
)

// find is a word that was found in a store: the name of a stream, or "file:" and the
// path of a file.
type find struct{ word, store string }

// scanner searches for words.
type scanner struct {
	words []string
	forms map[string][][]byte // of each word, as it may stand in a file
	found map[find]bool
}

func newScanner(words []string) *scanner {
	s := &scanner{words: words, forms: map[string][][]byte{}, found: map[find]bool{}}
	for _, w := range words {
		s.forms[w] = append([][]byte{[]byte(w)}, inBase64(w)...)
	}
	return s
}

// inBase64 is what base64 makes of a word, at each of the three places where it may
// begin: the characters that depend on nothing else.
func inBase64(w string) (out [][]byte) {
	for shift := range 3 {
		enc := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", shift) + w))
		from := []int{0, 2, 3}[shift]
		to := len(enc) - 4 // the last group may be shared with what follows
		if to > from {
			out = append(out, []byte(enc[from:to]))
		}
	}
	return out
}

// finds are the finds in order.
func (s *scanner) finds() []find {
	out := make([]find, 0, len(s.found))
	for f := range s.found {
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b find) int {
		return strings.Compare(a.word+"\x00"+a.store, b.word+"\x00"+b.store)
	})
	return out
}

// in reports whether a word was found in a store.
func (s *scanner) in(word, store string) bool { return s.found[find{word, store}] }

// maxDepth bounds how often what was unpacked is searched for what can be unpacked.
const maxDepth = 4

// look searches bytes, and what is packed in them.
func (s *scanner) look(store string, b []byte, depth int) {
	for _, w := range s.words {
		for _, form := range s.forms[w] {
			if bytes.Contains(b, form) {
				s.found[find{w, store}] = true
			}
		}
	}
	if depth >= maxDepth {
		return
	}
	for _, u := range unpack(b) {
		s.look(store, u, depth+1)
	}
}

var (
	zstdMagic = []byte{0x28, 0xB5, 0x2F, 0xFD}
	// zstdBase64 is what base64 makes of it at the start of a string.
	zstdBase64 = []byte("KLUv/")
)

// unpack finds frames of zstd, plain or in base64, wherever they begin. Of a frame
// that is damaged the part before the damage counts.
func unpack(b []byte) (out [][]byte) {
	for at := 0; ; at++ {
		i := bytes.Index(b[at:], zstdMagic)
		if i < 0 {
			break
		}
		at += i
		if u := inflate(b[at:]); len(u) > 0 {
			out = append(out, u)
		}
	}
	for at := 0; ; at++ {
		i := bytes.Index(b[at:], zstdBase64)
		if i < 0 {
			break
		}
		at += i
		end := at
		for end < len(b) && isBase64(b[end]) {
			end++
		}
		if (end-at)%4 == 1 {
			end-- // no byte ends in one character
		}
		raw, err := base64.RawStdEncoding.DecodeString(string(b[at:end]))
		if err != nil {
			continue
		}
		if u := inflate(raw); len(u) > 0 {
			out = append(out, u)
		}
	}
	return out
}

func isBase64(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '+' || c == '/'
}

// maxUnpacked bounds what one frame may unpack to.
const maxUnpacked = 64 << 20

func inflate(b []byte) []byte {
	d, err := zstd.NewReader(bytes.NewReader(b), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxUnpacked), zstd.IgnoreChecksum(true))
	if err != nil {
		return nil
	}
	defer d.Close()
	var out bytes.Buffer
	_, _ = io.Copy(&out, io.LimitReader(d, maxUnpacked)) // what comes before an error counts
	return out.Bytes()
}

// files searches all files below a folder.
func (s *scanner) files(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // NATS removed it meanwhile
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		s.look("file:"+where(rel), b, 0)
		return nil
	})
}

// where names a file: for those of NATS the stream and what the file is.
func where(rel string) string {
	parts := strings.Split(filepath.ToSlash(rel), "/")
	if i := slices.Index(parts, "streams"); i >= 0 && i+2 < len(parts) {
		return parts[i+1] + "/" + strings.Join(parts[i+2:], "/")
	}
	return strings.Join(parts, "/")
}

// streams searches what stands in all streams.
func (s *scanner) streams(ctx context.Context, js jetstream.JetStream) error {
	for _, st := range streams.Topology(streams.Options{}) {
		h, err := js.Stream(ctx, st.Name)
		if err != nil {
			return fmt.Errorf("stream %s: %w", st.Name, err)
		}
		err = jsrun.Each(ctx, h, ">", 1, h.CachedInfo().State.LastSeq, func(m *jetstream.RawStreamMsg) error {
			s.look(st.Name, m.Data, 0)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
