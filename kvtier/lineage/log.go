package lineage

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/schemas"
)

const blockTokens = 64

// logbook is the context of one branch as it was computed: text and tokens, with
// marks where both are known to correspond.
//
//	text    <|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n | Hi!<|im_end|> |
//	tokens   1   44  23  ...                                           | 87 12 2       |
//	marks                                                    prompt end^       answer end^
//
// A prompt that is sent again as text is rendered through the template and
// compared with the text at the marks. Up to the longest mark that matches, the
// computed tokens stand for the text; tokenizing the text again could give other
// tokens and would lose the cache.
type logbook struct {
	Text   string         `json:"text"`
	Tokens schemas.Tokens `json:"tokens"`
	Marks  []mark         `json:"marks,omitempty"`
	// Computed is the number of leading tokens whose KV was computed.
	Computed int `json:"computed,omitempty"`

	keys  []kvtier.Key // chain keys of whole blocks
	root  kvtier.Key   // what keys hang on
	keyed bool
}

// mark is a place where text and tokens correspond.
type mark struct {
	Text   int    `json:"t"` // bytes
	Tokens int    `json:"n"`
	Digest string `json:"d"` // SHA-256 of the text before it
}

func digestText(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// maxKnown bounds the marks that a render request carries.
const maxKnown = 256

// known lists the marks for a render request, longest last; skip is the number of
// oldest marks left out.
func (l *logbook) known() (ks []schemas.KnownText, skip int) {
	skip = max(0, len(l.Marks)-maxKnown)
	for _, m := range l.Marks[skip:] {
		ks = append(ks, schemas.KnownText{Bytes: m.Text, Digest: m.Digest})
	}
	return ks, skip
}

// extend makes the logbook of a prompt: the tokens up to mark (index, -1 for
// none) and then the new ones.
func (l *logbook) extend(at int, text string, rest schemas.Tokens) *logbook {
	n := &logbook{Text: text}
	if at < 0 {
		n.Tokens = rest
		n.mark()
		return n
	}
	m := l.Marks[at]
	n.Tokens = append(append(make(schemas.Tokens, 0, m.Tokens+len(rest)+256), l.Tokens[:m.Tokens]...), rest...)
	n.Marks = append(append([]mark(nil), l.Marks[:at+1]...), mark{})[:at+1]
	n.Computed = min(l.Computed, m.Tokens)
	n.inherit(l)
	n.mark()
	return n
}

// inherit takes over chain keys of blocks that both logbooks share.
func (n *logbook) inherit(l *logbook) {
	if !l.keyed {
		return
	}
	blocks := min(len(l.keys), n.Computed/blockTokens)
	n.keys = append([]kvtier.Key(nil), l.keys[:blocks]...)
	n.root, n.keyed = l.root, true
}

// mark notes that text and tokens correspond at their present ends.
func (l *logbook) mark() {
	m := mark{Text: len(l.Text), Tokens: len(l.Tokens), Digest: digestText(l.Text)}
	if k := len(l.Marks); k > 0 && l.Marks[k-1].Text == m.Text && l.Marks[k-1].Tokens == m.Tokens {
		return
	}
	l.Marks = append(l.Marks, m)
}

// answer appends what was generated. Text and tokens correspond afterwards unless
// generation ended inside a token, at a stop string.
func (l *logbook) answer(r *schemas.Result) {
	prompt := len(l.Tokens)
	l.Tokens = append(l.Tokens, r.Tokens...)
	// The last token was sampled and never fed back: its KV does not exist.
	l.Computed = max(prompt, len(l.Tokens)-1)
	l.Text += r.Text + r.End
	if r.Finish == "stop" && r.End == "" {
		return
	}
	l.mark()
}

// path names the known prefix of a prompt of n tokens: the blocks before its tail
// whose KV was computed. from is the index of the first token that a job must
// carry.
func (l *logbook) path(n int, root kvtier.Key) (path []schemas.Extent, from int) {
	blocks := min(l.Computed, n-1) / blockTokens
	if blocks == 0 {
		return nil, 0
	}
	if !l.keyed || l.root != root {
		l.keys, l.root, l.keyed = nil, root, true
	}
	for i := len(l.keys); i < blocks; i++ {
		parent := root
		if i > 0 {
			parent = l.keys[i-1]
		}
		k, err := kvtier.Chain(parent, i, l.Tokens[i*blockTokens:(i+1)*blockTokens], nil)
		if err != nil {
			return nil, 0
		}
		l.keys = append(l.keys, k)
	}
	k := l.keys[blocks-1]
	return []schemas.Extent{{Key: hex.EncodeToString(k[:]), N: blocks}}, blocks * blockTokens
}
