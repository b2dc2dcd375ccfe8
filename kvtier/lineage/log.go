package lineage

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/schemas"
)

const blockTokens = 64

// logbook is the context of one branch as it was computed: tokens, with marks
// where a text is known to correspond to them. The text is that of the template,
// as a prompt that is sent again will have it; what was generated may differ.
//
//	text    <|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n | Hi!<|im_end|> |
//	tokens   1   44  23  ...                                           | 87 12 2       |
//	marks                                                    prompt end^       answer end^
//
// A prompt that is sent again as text is rendered through the template and
// compared with the text at the marks. Up to the longest mark that matches, the
// computed tokens stand for the text; tokenizing the text again could give other
// tokens and would lose the cache. The mark behind an answer is a guess, that the
// template writes what was generated; answer helps where it is wrong.
//
// A logbook that belongs to a branch does not change any more, so that branches
// may share it.
type logbook struct {
	Tokens schemas.Tokens `json:"tokens"`
	Marks  []mark         `json:"marks,omitempty"`
	// Computed is the number of leading tokens whose KV was computed under Keys.
	Computed int             `json:"computed,omitempty"`
	Keys     schemas.KeySpec `json:"keys"`
	// Tools names the tool definitions of the prompt.
	Tools string              `json:"tools,omitempty"`
	Media []schemas.MediaSpan `json:"media,omitempty"`
	// Uncached: media of it are not fully described, so it was never kept.
	Uncached bool    `json:"uncached,omitempty"`
	Answer   *answer `json:"answer,omitempty"` // the last one

	text  string // of the prompt, until it is answered
	refs  int    // branches that have it
	chain []kvtier.Key
	root  kvtier.Key // what chain hangs on
	keyed bool
}

// mark is a place where text and tokens correspond.
type mark struct {
	Text   int    `json:"t"` // bytes
	Tokens int    `json:"n"`
	Digest string `json:"d"`           // SHA-256 of the text before it
	Items  int    `json:"m,omitempty"` // whole messages before it
}

// answer is what was generated behind the mark of a prompt.
type answer struct {
	Mark   int    `json:"mark"` // index of that mark
	At     int    `json:"at"`   // index of the message that it became
	Text   string `json:"text"`
	End    string `json:"end,omitempty"`
	Tokens int    `json:"n"` // up to its end
}

// check reports what cannot be in a logbook.
func (l *logbook) check() error {
	n := len(l.Tokens)
	if l.Computed < 0 || l.Computed > n {
		return fmt.Errorf("%d of %d tokens are computed", l.Computed, n)
	}
	text, tokens := 0, 0
	for i, m := range l.Marks {
		if m.Text < text || m.Tokens < tokens || m.Tokens > n || m.Items < 0 {
			return fmt.Errorf("mark %d is at byte %d and token %d of %d", i, m.Text, m.Tokens, n)
		}
		text, tokens = m.Text, m.Tokens
	}
	end := 0
	for i, m := range l.Media {
		if m.Offset < end || m.Length < 1 || m.Offset > n-m.Length {
			return fmt.Errorf("medium %d covers %d tokens from %d on of %d", i, m.Length, m.Offset, n)
		}
		end = m.Offset + m.Length
	}
	if a := l.Answer; a != nil && (a.Mark < 0 || a.Mark >= len(l.Marks) || a.At < 0 || a.Tokens < l.Marks[a.Mark].Tokens || a.Tokens > n) {
		return fmt.Errorf("the answer is behind mark %d of %d, up to token %d of %d", a.Mark, len(l.Marks), a.Tokens, n)
	}
	return nil
}

func digestText(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// maxKnown bounds the marks that a render request carries.
const maxKnown = 256

// known lists the marks for a render request, longest last; skip is the number of
// oldest marks left out. kept is the number of messages that are as they were: with
// media in the prompt, text beyond them says too little, for two images have one
// placeholder.
func (l *logbook) known(kept int) (ks []schemas.KnownText, skip int) {
	n := len(l.Marks)
	for len(l.Media) > 0 && n > 0 && l.Marks[n-1].Items > kept {
		n--
	}
	skip = max(0, n-maxKnown)
	for _, m := range l.Marks[skip:n] {
		ks = append(ks, schemas.KnownText{Bytes: m.Text, Digest: m.Digest})
	}
	return ks, skip
}

// prompt is what a prompt is made of.
type prompt struct {
	keys     schemas.KeySpec
	tools    string
	items    int // messages
	text     string
	rest     schemas.Tokens // behind what is spliced
	media    []schemas.MediaSpan
	uncached bool
}

// extend makes the logbook of a prompt: the tokens up to mark (index, -1 for
// none) and then the new ones. answered, when positive, is where the prompt's text
// holds the last answer, whose tokens stand for it.
func (l *logbook) extend(at, answered int, p prompt) *logbook {
	n := &logbook{Keys: p.keys, Tools: p.tools, text: p.text, Uncached: p.uncached}
	spliced := 0
	if at >= 0 {
		spliced = l.Marks[at].Tokens
		n.Marks = append(make([]mark, 0, at+4), l.Marks[:at+1]...)
	}
	if answered > 0 {
		spliced = l.Answer.Tokens
		if e := l.Answer.End; e != "" && !strings.HasSuffix(p.text[:answered], e) {
			spliced-- // the template ends answers by another token
		}
		n.Marks = append(n.Marks, mark{Text: answered, Tokens: spliced, Digest: digestText(p.text[:answered]), Items: l.Answer.At + 1})
	}
	n.Tokens = p.rest
	if spliced > 0 {
		n.Tokens = append(append(make(schemas.Tokens, 0, spliced+len(p.rest)+256), l.Tokens[:spliced]...), p.rest...)
		n.Uncached = n.Uncached || l.Uncached
	}
	for _, m := range l.Media {
		if m.Offset+m.Length <= spliced {
			n.Media = append(n.Media, m)
		}
	}
	for _, m := range p.media {
		m.Offset += spliced
		n.Media = append(n.Media, m)
	}
	n.share(l, spliced)
	n.mark(p.items)
	return n
}

// share finds how much of the computed tokens the new logbook begins with: from is
// known to be equal.
func (n *logbook) share(l *logbook, from int) {
	if l.Keys != n.Keys || n.Uncached || l.Uncached {
		return
	}
	k := min(from, len(n.Tokens))
	for k < l.Computed && k < len(n.Tokens) && n.Tokens[k] == l.Tokens[k] {
		k++
	}
	n.Computed = min(k, l.Computed, sameMedia(l.Media, n.Media))
	if l.keyed {
		blocks := min(len(l.chain), n.Computed/blockTokens)
		n.chain = append([]kvtier.Key(nil), l.chain[:blocks]...)
		n.root, n.keyed = l.root, true
	}
}

// sameMedia is up to which token two prompts hold the same media.
func sameMedia(a, b []schemas.MediaSpan) int {
	for i := 0; ; i++ {
		switch {
		case i == len(a) && i == len(b):
			return schemas.MaxTokens
		case i == len(a):
			return b[i].Offset
		case i == len(b):
			return a[i].Offset
		case a[i].Digest != b[i].Digest || a[i].Offset != b[i].Offset || a[i].Length != b[i].Length:
			return min(a[i].Offset, b[i].Offset)
		}
	}
}

// mark notes that text and tokens correspond at their present ends.
func (l *logbook) mark(items int) {
	m := mark{Text: len(l.text), Tokens: len(l.Tokens), Items: items}
	if k := len(l.Marks); k > 0 && l.Marks[k-1].Text == m.Text && l.Marks[k-1].Tokens == m.Tokens {
		return
	}
	m.Digest = digestText(l.text)
	l.Marks = append(l.Marks, m)
}

// answered appends what was generated. Text and tokens correspond afterwards unless
// generation ended inside a token, at a stop string.
func (l *logbook) answered(r *schemas.Result, items int) {
	at := len(l.Tokens)
	l.Tokens = append(l.Tokens, r.Tokens...)
	// The last token was sampled and never fed back: its KV does not exist.
	if l.Computed = max(at, len(l.Tokens)-1); l.Uncached {
		l.Computed = 0
	}
	whole := r.End != "" || r.Finish == "length"
	if whole && len(l.Marks) > 0 && items > 0 {
		l.Answer = &answer{Mark: len(l.Marks) - 1, At: items, Text: r.Text, End: r.End, Tokens: len(l.Tokens)}
	}
	if whole && len(l.Marks) > 0 {
		l.text += r.Text + r.End
		l.mark(items + 1)
	}
	l.text = ""
}

// blocks is the number of leading blocks before token n whose KV was computed. It
// names them under root.
func (l *logbook) blocks(n int, root kvtier.Key) int {
	return l.name(min(l.Computed, n)/blockTokens, root)
}

// name names the first blocks of the chain under root and returns how many of them
// have names.
func (l *logbook) name(blocks int, root kvtier.Key) int {
	if blocks <= 0 || l.Uncached {
		return 0
	}
	if !l.keyed || l.root != root {
		l.chain, l.root, l.keyed = nil, root, true
	}
	for i := len(l.chain); i < blocks; i++ {
		parent := root
		if i > 0 {
			parent = l.chain[i-1]
		}
		k, err := kvtier.Chain(parent, i, l.Tokens[i*blockTokens:(i+1)*blockTokens], l.blockMedia(i))
		if err != nil {
			return i // media that no key can name
		}
		l.chain = append(l.chain, k)
	}
	return blocks
}

// blockMedia is the media that touch block i, with offsets from its start.
func (l *logbook) blockMedia(i int) (out []kvtier.Media) {
	from := i * blockTokens
	for _, m := range l.Media {
		if m.Offset >= from+blockTokens {
			break
		}
		if m.Offset+m.Length > from {
			out = append(out, kvtier.Media{Digest: m.Digest, Offset: m.Offset - from, Length: m.Length})
		}
	}
	return out
}

// path names the whole blocks of a prompt of n tokens before its last one: those
// whose KV was computed, and the rest. from is the index of the first token that a
// job must carry.
func (l *logbook) path(n int, root kvtier.Key) (path, rest []schemas.Extent, from int) {
	known := l.blocks(n-1, root)
	all := l.name((n-1)/blockTokens, root)
	key := func(end int) string { return l.chain[end-1].String() }
	return schemas.CutAtStops(0, known, key), schemas.CutAtStops(known, all, key), known * blockTokens
}

// names are keys of the computed blocks behind the first from ones: of the next one,
// which every node has that has any of them, of those at stops, where others may fork
// off, and of the last one.
func (l *logbook) names(from int, root kvtier.Key) (ks []kvtier.Key) {
	n := l.blocks(l.Computed, root)
	if from < n {
		ks = append(ks, l.chain[from])
	}
	for end := schemas.NextStop(from + 1); end < n; end = schemas.NextStop(end) {
		ks = append(ks, l.chain[end-1])
	}
	if from+1 < n {
		ks = append(ks, l.chain[n-1])
	}
	return ks
}

// parts names what a hand-over may have stored of block i before it was full: as many of
// its first tokens as were there. The blocks before it have names.
func (l *logbook) parts(i int, root kvtier.Key) (ks []kvtier.Key) {
	if i > len(l.chain) || l.Uncached || len(l.Media) > 0 {
		return nil // a context with media is not stored in parts
	}
	if i > 0 {
		root = l.chain[i-1]
	}
	tokens := l.Tokens[i*blockTokens:]
	for n := 1; n <= min(len(tokens), blockTokens-1); n++ {
		if k, err := kvtier.Chain(root, i, tokens[:n], nil); err == nil {
			ks = append(ks, k)
		}
	}
	return ks
}

// whole is the extent of all whole blocks of a prompt before its last token, computed
// or not.
func (l *logbook) whole(root kvtier.Key) schemas.Extent {
	return l.extent(l.name((len(l.Tokens)-1)/blockTokens, root))
}

// tail is the extent of all computed blocks before token n; it has no blocks where
// there are none.
func (l *logbook) tail(n int, root kvtier.Key) schemas.Extent {
	return l.extent(l.blocks(n, root))
}

func (l *logbook) extent(blocks int) schemas.Extent {
	if blocks <= 0 {
		return schemas.Extent{}
	}
	k := l.chain[blocks-1]
	return schemas.Extent{Key: hex.EncodeToString(k[:]), N: blocks}
}
