package lineage

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	infer "github.com/weir-dev/weir/kvtier/branch"
	"github.com/weir-dev/weir/schemas"
)

type jsonRaw = json.RawMessage

// entry is one message of a session. Contexts that hold the same message share it.
type entry struct {
	raw  jsonRaw
	sum  [16]byte // of raw
	dig  [16]byte // of what it says
	size int      // bytes of its canonical form
	role string
	// What is read of it on the way.
	media, reasoning bool
	calls            []schemas.CanonicalCall
	toolCall         string
	call             int // which call of its message toolCall is, or -1
	refs             int // places in contexts of the session
}

func sumOf(b []byte) (out [16]byte) {
	sum := sha256.Sum256(b)
	copy(out[:], sum[:])
	return out
}

// entry reads the message behind those of list, in which calls finds calls. like is
// the message that probably stands there, or nil.
func (s *session) entry(list []*entry, calls *callIndex, raw jsonRaw, like *entry) *entry {
	if like != nil && bytes.Equal(like.raw, raw) && like.answersIn(list, calls) {
		return like
	}
	sum := sumOf(raw)
	if e := s.stored[sum]; e != nil && e.answersIn(list, calls) {
		return e
	}
	e := &entry{raw: raw, sum: sum, dig: sum, size: len(raw)}
	f, err := schemas.Canonical(raw)
	if err != nil {
		return e // the tokenizer says what is wrong with it
	}
	e.dig, e.size, e.role, e.media, e.reasoning, e.calls, e.toolCall = f.Digest, len(f.JSON), f.Role, f.Media, f.Reasoning, f.Calls, f.ToolCall
	if e.toolCall == "" {
		return e
	}
	// Clients that issue call ids of their own change them in the call and in its
	// result: what counts is which call is meant.
	_, k := calls.find(list, e.toolCall)
	if e.answer(k); k >= 0 {
		named := `,"tool_call_id":` + quoted(e.toolCall) + `}`
		if plain, ok := strings.CutSuffix(string(f.JSON), named); ok {
			e.dig = sumOf([]byte(plain + `,"tool_call":` + strconv.Itoa(k) + `}`))
		}
	}
	return e
}

// answersIn reports whether a message means behind that list what it was read as: the
// same id may name another call there.
func (e *entry) answersIn(list []*entry, calls *callIndex) bool {
	if e.toolCall == "" {
		return true
	}
	_, k := calls.find(list, e.toolCall)
	return k == e.call
}

// answer notes which call a tool message answers. The same bytes are another message
// where they answer another call.
func (e *entry) answer(k int) {
	if e.call = k; k > 0 {
		e.sum = sumOf(append(e.sum[:], strconv.Itoa(k)...))
	}
}

func quoted(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(s) != nil {
		return ""
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// callIndex finds calls by their ids in a list of messages that grows. A search for
// each result would take minutes where a body has hundreds of thousands of them.
type callIndex struct {
	at   map[string]callPlace
	read int // messages of the list that are in at
}

// callPlace is the index of a message and the place among its calls.
type callPlace struct{ at, k int }

// find returns the last call of that id in list, which begins with what it was in
// the calls before: the index of its message and its place among the calls of that
// message, or -1.
func (x *callIndex) find(list []*entry, id string) (at, k int) {
	x.upTo(list)
	if p, ok := x.at[id]; ok {
		return p.at, p.k
	}
	return -1, -1
}

// any reports whether list has a call.
func (x *callIndex) any(list []*entry) bool {
	x.upTo(list)
	return len(x.at) > 0
}

func (x *callIndex) upTo(list []*entry) {
	for ; x.read < len(list); x.read++ {
		calls := list[x.read].calls
		for k := len(calls) - 1; k >= 0; k-- { // of two with one id the first counts
			if x.at == nil {
				x.at = map[string]callPlace{}
			}
			x.at[calls[k].ID] = callPlace{x.read, k}
		}
	}
}

// entries reads a list of messages that probably is like another one.
func (s *session) entries(raws []jsonRaw, before, like []*entry) []*entry {
	list := append(make([]*entry, 0, len(before)+len(raws)), before...)
	var calls callIndex
	for i, raw := range raws {
		var e *entry
		if i < len(like) {
			e = like[i]
		}
		list = append(list, s.entry(list, &calls, raw, e))
	}
	return list[len(before):]
}

// same is the number of leading messages that say the same.
func same(a, b []*entry) int {
	n := 0
	for n < len(a) && n < len(b) && (a[n] == b[n] || a[n].dig == b[n].dig) {
		n++
	}
	return n
}

// context makes the messages that a turn is rendered from: those of the branch's
// context as they were produced here, with their reasoning, where the turn repeats
// them, then the others. It refuses results of calls that nobody made.
func (t *turn) context(old, items []*entry, delta bool) (all []*entry, kept int, f *schemas.Failure) {
	if delta {
		kept, all = len(old), append(old[:len(old):len(old)], items...)
		items = all
	} else {
		kept = same(old, items)
		all = append(append(make([]*entry, 0, len(items)), old[:kept]...), items[kept:]...)
	}
	var calls callIndex
	for i := kept; i < len(items); i++ {
		e := items[i]
		if e.role != "tool" {
			continue
		}
		at, k := calls.find(items[:i], e.toolCall)
		if at < 0 && (e.toolCall != "" || !calls.any(items[:i])) {
			n := i
			if delta {
				n -= kept
			}
			param := fmt.Sprintf("messages[%d].tool_call_id", n)
			return nil, 0, invalid(param, "%s is %.80q: a tool message must answer a call in an assistant message before it", param, e.toolCall)
		}
		// The call has the id here that it was produced with.
		if at >= 0 && at < kept && all[at] != items[at] && k < len(all[at].calls) && all[at].calls[k].ID != e.toolCall {
			all[i] = e.renamed(all[at].calls[k].ID)
		}
	}
	return all, kept, nil
}

// renamed is the message with another tool_call_id.
func (e *entry) renamed(id string) *entry {
	var m map[string]json.RawMessage
	if json.Unmarshal(e.raw, &m) != nil {
		return e
	}
	m["tool_call_id"] = jsonRaw(quoted(id))
	raw, err := json.Marshal(m)
	if err != nil {
		return e
	}
	n := *e
	n.raw, n.sum, n.toolCall, n.refs = raw, sumOf(raw), id, 0
	n.answer(e.call)
	return &n
}

// setHist replaces a branch's messages and keeps the counts of what is stored.
func (l *Lineage) setHist(s *session, b *branch, hist []*entry) {
	n := 0
	for n < len(hist) && n < len(b.hist) && hist[n] == b.hist[n] {
		n++
	}
	for i := n; i < len(hist); i++ {
		e := hist[i]
		if e.refs == 0 {
			if o := s.stored[e.sum]; o != nil {
				e, hist[i] = o, o
			} else {
				s.stored[e.sum] = e
				s.bytes += len(e.raw)
				l.bytes += len(e.raw)
			}
		}
		e.refs++
	}
	for _, e := range b.hist[n:] {
		if e.refs--; e.refs == 0 {
			delete(s.stored, e.sum)
			s.bytes -= len(e.raw)
			l.bytes -= len(e.raw)
		}
	}
	b.hist = hist
}

// chainOf names a list of messages.
func chainOf(list []*entry) (sum [16]byte) {
	var b [32]byte
	for _, e := range list {
		copy(b[:16], sum[:])
		copy(b[16:], e.dig[:])
		sum = sumOf(b[:])
	}
	return sum
}

func rawsOf(list []*entry) []jsonRaw {
	out := make([]jsonRaw, len(list))
	for i, e := range list {
		out[i] = e.raw
	}
	return out
}

// itemsOf is a context as the inference of branches sees it. Sizes are bytes.
func itemsOf(list []*entry) []infer.Item {
	out := make([]infer.Item, len(list))
	for i, e := range list {
		out[i] = e.item()
	}
	return out
}

func (e *entry) item() infer.Item {
	role := infer.User
	switch e.role {
	case "system", "developer":
		role = infer.System
	case "assistant":
		role = infer.Assistant
	case "tool", "function":
		role = infer.Tool
	}
	return infer.Item{Digest: e.dig, Size: e.size, Role: role, Media: e.media}
}

// answerEntry is the message that a result became.
func (s *session) answerEntry(list []*entry, r *schemas.Result) *entry {
	raw := r.Message
	if len(raw) == 0 {
		var err error
		raw, err = json.Marshal(struct {
			Role    string `json:"role"`
			Content string `json:"content"`
		}{"assistant", r.Text})
		if err != nil {
			return nil
		}
	}
	return s.entry(list, new(callIndex), raw, nil)
}

// mediaRef is how messages name an object of the payload bucket.
const mediaRef = "weir-media:"

// refsIn lists the payload objects that a message names.
func refsIn(raw jsonRaw) (refs []string) {
	for {
		i := bytes.Index(raw, []byte(mediaRef))
		if i < 0 {
			return refs
		}
		raw = raw[i+len(mediaRef):]
		if len(raw) >= 64 && isHex(raw[:64]) {
			refs = append(refs, string(raw[:64]))
		}
	}
}

func isHex(b []byte) bool {
	for _, c := range b {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
