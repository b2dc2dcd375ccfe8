package explaincmd

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"sort"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/tokenizer"
)

// locateWait bounds the search for a place, which asks the tokenizer some 100 times.
const locateWait = 5 * time.Second

// errPlace: the place cannot be told.
var errPlace = errors.New("the messages as they are rendered today do not give the prompt's tokens")

// locate finds the message and the byte in which the first missed token lies, for
// blocks that are gone: there no difference of texts shows the place. The prompt is
// rendered again, because no message says where its tokens came from.
func (s *Source) locate(ctx context.Context, f *facts, id string, m *Miss) {
	r, h := f.results[id], f.turn(id)
	if r == nil || h == nil || h.turn == nil || m.Token >= r.Usage.Prompt {
		return
	}
	if m.Cause != schemas.MissEvicted && m.Cause != schemas.MissNotKept {
		return
	}
	all, err := f.messages(id)
	if err == nil && len(all) > 0 {
		ctx, cancel := context.WithTimeout(ctx, locateWait)
		defer cancel()
		err = s.search(ctx, &search{s: s, model: r.Model, turn: h.turn, all: all}, r.Usage.Prompt, m)
	}
	if err != nil {
		f.note("the message in which the missed block begins is not known: %s", err)
	}
}

// search renders a turn's messages.
type search struct {
	s     *Source
	model string
	turn  *schemas.Turn
	all   []json.RawMessage
}

func (s *Source) search(ctx context.Context, q *search, prompt int, m *Miss) error {
	whole, err := q.render(ctx, len(q.all), nil)
	if err != nil {
		return err
	}
	if whole.Text == "" {
		return errPlace
	}
	n := len(whole.Tokens)
	if off := n - prompt; off > prompt/50+2 || -off > prompt/50+2 {
		return errPlace
	}
	at, err := q.byteOf(ctx, whole.Text, n, m.Token)
	if err != nil {
		return err
	}
	index, from, err := q.messageAt(ctx, whole.Text, at)
	if err != nil {
		return err
	}
	m.Message, m.About = &index, n != prompt
	var text string
	m.Role, text = content(q.all[index])
	text = strings.TrimSpace(text)
	if i := strings.Index(whole.Text[from:], text); text != "" && i >= 0 {
		b := max(0, min(at-from-i, len(text)))
		m.Byte = &b
		m.Before, m.After = around(text, b)
	}
	return nil
}

// near is how far a search may be from the place, in bytes: a text that is cut within a
// control token has more tokens, not fewer.
const near = 32

// byteOf is the byte of the prompt's text at which a token begins, n being the number
// of its tokens.
func (q *search) byteOf(ctx context.Context, text string, n, token int) (at int, err error) {
	behind := func(b int) (int, bool) {
		if b == 0 || b >= len(text) || !utf8.RuneStart(text[b]) {
			return n, b == 0
		}
		sum := sha256.Sum256([]byte(text[:b]))
		r, rerr := q.render(ctx, len(q.all), []schemas.KnownText{{Bytes: b, Digest: hex.EncodeToString(sum[:])}})
		if rerr == nil && r.Matched != 1 {
			rerr = errPlace
		}
		if rerr != nil {
			err = rerr
			return 0, false
		}
		return len(r.Tokens), true
	}
	at = sort.Search(len(text), func(b int) bool {
		for b > 0 && !utf8.RuneStart(text[b]) {
			b--
		}
		left, ok := behind(b)
		return err != nil || ok && left <= n-token
	})
	for b := max(0, at-near); b < min(len(text), at+near) && err == nil; b++ {
		if left, ok := behind(b); ok && left == n-token {
			return b, nil // the first one: within the token there are as many
		}
	}
	return min(at, len(text)-1), err
}

// messageAt is the message that holds a byte of the prompt's text, and where what is
// before it ends: the first one with which the rendered text reaches that byte.
func (q *search) messageAt(ctx context.Context, text string, at int) (index, from int, err error) {
	reach := map[int]int{0: 0}
	index = sort.Search(len(q.all)-1, func(i int) bool {
		if err != nil {
			return true
		}
		var r *schemas.RenderReply
		if r, err = q.render(ctx, i+1, nil); err != nil {
			return true
		}
		n := 0
		for n < len(text) && n < len(r.Text) && text[n] == r.Text[n] {
			n++
		}
		reach[i+1] = n
		return n > at
	})
	return index, reach[index], err
}

// render asks the tokenizer to render the first messages, without the tokens of a
// known text.
func (q *search) render(ctx context.Context, messages int, known []schemas.KnownText) (*schemas.RenderReply, error) {
	t := q.turn
	body, err := tokenizer.Pack(&schemas.RenderRequest{
		Header: schemas.H(), Messages: q.all[:messages], Tools: t.Tools, Kwargs: t.ChatTemplateKwargs, ToolChoice: t.ToolChoice, Known: known,
	})
	if err != nil {
		return nil, err
	}
	m, err := q.s.nc.RequestWithContext(ctx, tokenizer.Subject(q.model), body)
	if err != nil {
		return nil, err
	}
	r := new(schemas.RenderReply)
	if err := tokenizer.Unpack(m.Data, r); err != nil {
		return nil, err
	}
	if r.Failure != nil {
		return nil, errors.New(r.Failure.Message)
	}
	return r, nil
}
