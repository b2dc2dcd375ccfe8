package gateway

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/turns"
)

// Headers that place a request in a session. Ids that are none of weir's are
// replaced by their hash.
const (
	headerSession = "X-Weir-Session"
	headerBranch  = "X-Weir-Branch"
	headerTurn    = "X-Weir-Turn"
	headerIdem    = "Idempotency-Key"
)

// place finds the session, branch and id of a turn, and removes from it what
// concerns nobody behind the gateway.
//
//	the body names an earlier answer  -> its session
//	a header or field of a client     -> that session, see identity.go
//	known, branch or parent alone     -> a new session: the caller keeps books itself
//	messages                          -> a session inferred from how they begin
//	anything else                     -> a new session
func (g *Gateway) place(r *http.Request, c *call) *apiError {
	t := c.turn
	ext, e := readNVExt(t.NVExt)
	if e != nil {
		return e
	}
	key, e := text("prompt_cache_key", t.PromptCacheKey)
	if e != nil {
		return e
	}
	dropCacheControl(t)
	said := clues{header: r.Header, body: c.said, ext: ext, metadata: t.Metadata}
	id := identify(said)
	if t.Weir.Priority == 0 {
		t.Weir.Priority = said.priority()
	}
	for _, h := range [...]struct {
		to   *string
		from string
	}{
		{&t.Weir.Branch, r.Header.Get(headerBranch)},
		{&t.Weir.Branch, id.branch},
		{&t.Weir.Turn, r.Header.Get(headerTurn)},
		{&t.Weir.Turn, r.Header.Get(headerIdem)},
	} {
		if *h.to == "" && h.from != "" {
			*h.to = schemas.CleanID(h.from)
		}
	}
	if t.Weir.Hint == "" {
		t.Weir.Hint = id.hint
	}
	t.Weir.Inferred = false // the gateway's word, not the caller's
	switch w := &t.Weir; {
	case c.session != "":
	case id.session != "":
		c.session, c.final, c.child = schemas.CleanID(id.session), id.final, id.branch != ""
	case w.Branch != "" || w.Parent != "" || w.Known != "":
		c.session = turns.NewID("s")
	default:
		user, _ := text("user", t.User) // whoever sends another type is one user
		c.session, w.Inferred = inferred(g.o.Tenant, c.model, key, user, t.Messages)
	}
	// What concerns only this response, or nobody, stays out of the turn: a turn
	// asked for again as a stream is the same turn.
	t.Stream, t.StreamOptions, t.NVExt = nil, nil, nil
	t.User, t.Metadata, t.Store, t.ServiceTier, t.SafetyIdentifier = nil, nil, nil, nil, nil
	t.PromptCacheKey, t.PromptCacheRetention = nil, nil
	return nil
}

// inferred names the session of a client that names none, by how its conversation
// begins: system messages and the first message of the user stay while everything
// behind them grows, is compacted or forks. prompt_cache_key names an application
// and user a person: neither is a session by itself, but both tell agents apart
// that begin alike. ok is false when there is nothing to go by; the session is a
// new one then.
func inferred(tenant, model, key, user string, messages []json.RawMessage) (session string, ok bool) {
	h := sha256.New()
	for _, s := range [...]string{tenant, model, key, user} {
		h.Write([]byte(s))
		h.Write([]byte{0})
	}
	for _, raw := range messages {
		if _, digest, err := schemas.CanonicalMessage(raw); err == nil {
			h.Write(digest[:])
		} else {
			h.Write(raw) // refused later, with a better reason
		}
		var m struct {
			Role string `json:"role"`
		}
		if json.Unmarshal(raw, &m) == nil && m.Role == "user" {
			var sum [sha256.Size]byte
			return "i-" + hex.EncodeToString(h.Sum(sum[:0])[:12]), true
		}
	}
	return turns.NewID("s"), false
}

// text reads a field that must be a string; absent and null are empty.
func text(param string, raw json.RawMessage) (string, *apiError) {
	if !given(raw) {
		return "", nil
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return "", invalid(param, "%s must be a string", param)
	}
	return s, nil
}
