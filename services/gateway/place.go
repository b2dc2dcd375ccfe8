package gateway

import (
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

// place finds the session, branch and id of a turn.
func (g *Gateway) place(r *http.Request, c *call) *apiError {
	t := c.turn
	if c.session == "" {
		c.session = r.Header.Get(headerSession)
	}
	// prompt_cache_key names an application, not a conversation: as a session it
	// would make unrelated requests wait for each other. Blocks are found by content.
	if raw := t.PromptCacheKey; len(raw) > 0 && string(raw) != "null" {
		var key string
		if json.Unmarshal(raw, &key) != nil {
			return invalid("prompt_cache_key", "prompt_cache_key must be a string")
		}
	}
	if c.session == "" {
		c.session = turns.NewID("s")
	} else {
		c.session = schemas.CleanID(c.session)
	}
	for _, h := range [...]struct {
		to   *string
		name string
	}{{&t.Weir.Branch, headerBranch}, {&t.Weir.Turn, headerTurn}, {&t.Weir.Turn, headerIdem}} {
		if v := r.Header.Get(h.name); *h.to == "" && v != "" {
			*h.to = schemas.CleanID(v)
		}
	}
	// What concerns only this response, or nobody, stays out of the turn: a turn
	// asked for again as a stream is the same turn.
	t.Stream, t.StreamOptions = nil, nil
	t.User, t.Metadata, t.Store, t.ServiceTier, t.SafetyIdentifier = nil, nil, nil, nil, nil
	t.PromptCacheKey, t.PromptCacheRetention = nil, nil
	return nil
}
