package gateway

import (
	"encoding/json"
	"net/http"

	"github.com/weir-dev/weir/schemas"
)

// dialect is an HTTP API in which turns are asked for and answered. It keeps no
// state: a request becomes a call, and what the turn yields goes to its speaker,
// or becomes one whole body.
//
//	body --parse--> call --place (headers, content)--> publish
//	stream: newSpeaker, begin, piece…, end | fail    whole: whole | failure
type dialect interface {
	// String names the endpoint in metrics and spans.
	String() string
	// parse reads a body into a call: the turn, whether it is streamed, and in more
	// whatever the answer needs. It leaves user, metadata and prompt_cache_key in the
	// turn: place reads and removes them. It sets session only when the body names
	// an earlier answer that the turn continues.
	parse(g *Gateway, r *http.Request, body []byte) (*call, *apiError)
	// newSpeaker makes the writer of one streamed answer.
	newSpeaker(c *call, w *sse) speaker
	// whole is the body of an answer that is not streamed, for encoding/json.
	whole(c *call, r *reply) any
	// failure is the body of an error; it may change e.Status first. c is nil when
	// the request was not understood.
	failure(c *call, e *apiError) []byte
}

// speaker writes one answer as server-sent events. The header was sent before
// begin; flushing is the exchange's business, except that end and fail flush.
type speaker interface {
	// begin writes what stands before the answer. It is called once, when the first
	// tokens are there or a keep-alive is due.
	begin() error
	// early is called when tokens are there of which nothing can be shown yet, such as
	// the beginning of a tool call. Clients take the first piece of a stream for the
	// first token.
	early() error
	// piece writes new text, reasoning or a part of a tool call. p is valid during
	// the call only.
	piece(p *piece) error
	// end writes the end of an answer. Every part of it has been given to piece.
	end(r *reply) error
	// fail writes an error as the last event.
	fail(e *apiError) error
	// idle keeps proxies and clients from closing a silent connection.
	idle() error
}

// piece is what a frame adds to an answer: one of Content, Reasoning and a part of
// call number Call, which is -1 otherwise.
type piece struct {
	delta
	Logprobs []json.RawMessage // of all tokens of the frame, with its first piece
	TextAt   int               // byte offset of the frame's text in the generated text
}

// reply is a turn's answer, parsed.
type reply struct {
	*schemas.Result
	Message message
	Finish  string // stop, length or tool_calls
	About   *about
}

// message is an assistant's message as Chat Completions has it.
type message struct {
	Role      string     `json:"role"`
	Content   *string    `json:"content"` // null when there are only calls
	Reasoning string     `json:"reasoning_content,omitempty"`
	Calls     []toolCall `json:"tool_calls,omitempty"`
	Refusal   *string    `json:"refusal"`
}

type toolCall struct {
	ID       string         `json:"id"`
	Type     string         `json:"type"`
	Function calledFunction `json:"function"`
}

type calledFunction struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"` // JSON as the model wrote it
}
