package gateway

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/weir-dev/weir/schemas"
)

// identity is what a client says of itself, in its own words: ids are not clean.
type identity struct {
	session string
	branch  string // empty: lineage finds the branch by content
	final   bool   // nothing comes after this turn on the branch, or in the session
	hint    schemas.TurnHint
}

// clues are where clients say who they are. Tenants are not among them: x-tenant-id
// is not authenticated, so it is not read.
type clues struct {
	header   http.Header
	body     map[string]string // client_metadata of a Responses body
	ext      nvext
	metadata json.RawMessage
}

// get is the first of these headers that is there. A body that carries headers,
// for clients behind web sockets, comes after them.
func (c *clues) get(names ...string) string {
	for _, n := range names {
		if v := strings.TrimSpace(c.header.Get(n)); v != "" {
			return v
		}
	}
	for _, n := range names {
		if v := strings.TrimSpace(c.body[n]); v != "" {
			return v
		}
	}
	return ""
}

// saidIn reads client_metadata, in which Codex repeats its headers. It means
// nothing to anybody else, so a strange one is not an error.
func saidIn(raw json.RawMessage) map[string]string {
	var all map[string]json.RawMessage
	if !given(raw) || json.Unmarshal(raw, &all) != nil {
		return nil
	}
	out := map[string]string{}
	for name, v := range all {
		var s string
		if json.Unmarshal(v, &s) == nil {
			out[strings.ToLower(name)] = s
		}
	}
	return out
}

// identify reads the clients in a fixed order; the first one that names a session
// counts. A sub-agent that has a session id of its own is a branch of its parent's
// session.
func identify(c clues) identity {
	meta := codexMeta(&c)
	id := identity{session: c.get(headerSession)}
	for _, client := range [...]func(*clues, *codexTurn) identity{dynamo, claudeCode, codex, openCode, claudeUser} {
		if id.session == "" {
			id = client(&c, meta)
		}
	}
	if meta.RequestKind == "compaction" || given(c.ext.Context.Compaction) {
		id.hint = schemas.HintCompaction
	}
	return id
}

// child places an agent that may have a parent with another session id.
func child(session, parent string) identity {
	if parent == "" || session == "" || parent == session {
		return identity{session: session}
	}
	return identity{session: parent, branch: session}
}

// dynamo: x-dynamo-* headers, or the same fields of nvext.agent_context.
func dynamo(c *clues, _ *codexTurn) identity {
	x := c.ext.Context
	id := child(first(c.get("x-dynamo-session-id"), x.Session), first(c.get("x-dynamo-parent-session-id"), x.Parent))
	id.final = id.session != "" && (x.Final || isTrue(c.get("x-dynamo-session-final")))
	return id
}

// claudeCode sends one session id for an agent and its sub-agents, which have an
// agent id besides.
func claudeCode(c *clues, _ *codexTurn) identity {
	return identity{session: c.get("x-claude-code-session-id"), branch: c.get("x-claude-code-agent-id")}
}

// codexTurn is the JSON of x-codex-turn-metadata.
type codexTurn struct {
	RequestKind string `json:"request_kind"` // turn, compaction, …
	Session     string `json:"session_id"`
	Thread      string `json:"thread_id"`
	Parent      string `json:"parent_thread_id"`
}

func codexMeta(c *clues) *codexTurn {
	m := new(codexTurn)
	if json.Unmarshal([]byte(c.get("x-codex-turn-metadata")), m) != nil {
		return new(codexTurn)
	}
	return m
}

// codex: a session has threads; that of the main agent has the session's id.
// Older versions send a conversation or thread id alone.
func codex(c *clues, m *codexTurn) identity {
	session := first(c.get("session-id", "session_id", "conversation_id"), m.Session)
	thread := first(c.get("thread-id", "thread_id"), m.Thread)
	if session == "" {
		return child(thread, first(c.get("x-codex-parent-thread-id", "parent_thread_id"), m.Parent))
	}
	if thread == session {
		thread = ""
	}
	return identity{session: session, branch: thread}
}

// openCode: a sub-agent is a session of its own that names its parent.
func openCode(c *clues, _ *codexTurn) identity {
	return child(c.get("x-session-id", "x-session-affinity"), c.get("x-parent-session-id"))
}

// claudeUser: without the header, Claude Code's session is in metadata.user_id,
// at the end of the text or, in later versions, as a field of JSON in that text.
func claudeUser(c *clues, _ *codexTurn) identity {
	var meta struct {
		User string `json:"user_id"`
	}
	if len(c.metadata) == 0 || json.Unmarshal(c.metadata, &meta) != nil {
		return identity{}
	}
	var user struct {
		Session string `json:"session_id"`
	}
	if json.Unmarshal([]byte(meta.User), &user) == nil {
		return identity{session: user.Session}
	}
	_, session, _ := strings.Cut(meta.User, "_session_")
	return identity{session: session}
}

func first(s ...string) string {
	for _, v := range s {
		if v != "" {
			return v
		}
	}
	return ""
}

func isTrue(s string) bool { return s == "1" || strings.EqualFold(s, "true") }
