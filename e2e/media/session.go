package media

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"io"
	"math/rand/v2"
	"net/http"
)

// Size of a screenshot: of noise, its PNG has about a megabyte.
const (
	shotWidth  = 640
	shotHeight = 540
)

// shot is a screenshot of noise; the same seed gives the same bytes.
func shot(seed uint64) []byte {
	m := image.NewRGBA(image.Rect(0, 0, shotWidth, shotHeight))
	r := rand.New(rand.NewPCG(seed, 1))
	for i := 0; i < len(m.Pix); i += 4 {
		v := r.Uint32()
		m.Pix[i], m.Pix[i+1], m.Pix[i+2], m.Pix[i+3] = byte(v), byte(v>>8), byte(v>>16), 255
	}
	var b bytes.Buffer
	e := png.Encoder{CompressionLevel: png.BestSpeed}
	_ = e.Encode(&b, m) // a buffer takes everything
	return b.Bytes()
}

type object map[string]any

func text(s string) object { return object{"type": "text", "text": s} }

func picture(b []byte, detail string) object {
	return object{"type": "image_url", "image_url": object{"url": "data:image/png;base64," + base64.StdEncoding.EncodeToString(b), "detail": detail}}
}

func say(role string, content any) object { return object{"role": role, "content": content} }

// answer is what the gateway says to a request, as far as it matters here.
type answer struct {
	Choices []struct {
		Message struct {
			Content string `json:"content"`
		} `json:"message"`
	} `json:"choices"`
	Usage struct {
		Prompt  int `json:"prompt_tokens"`
		Details struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	} `json:"usage"`
	sent int // bytes of the request
}

// post sends a request of a session.
func post(ctx context.Context, url, session string, messages []object) (*answer, error) {
	body, err := json.Marshal(object{"messages": messages, "max_tokens": 8, "temperature": 0})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Weir-Session", session)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // read to its end
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", resp.Status, b)
	}
	a := &answer{sent: len(body)}
	if err := json.Unmarshal(b, a); err != nil || len(a.Choices) == 0 {
		return nil, fmt.Errorf("%w: %s", err, b)
	}
	return a, nil
}

// agent is a computer-use agent: at each step it sends its whole history with a new
// screenshot. Of the screenshots it keeps the last few; in the place of older ones it
// sends a note.
type agent struct {
	url, session string
	keep         int
	history      []object
	shots        []int // indices in history of messages with a screenshot
}

func newAgent(url, session string, keep int) *agent {
	return &agent{url: url, session: session, keep: keep, history: []object{
		say("system", "You use a computer. You see screenshots and answer with the next action."),
		say("user", "Open the harbour's timetable and find the first ferry."),
	}}
}

const pruned = "[an earlier screenshot was here]"

// step sends a screenshot and takes the answer into the history.
func (a *agent) step(ctx context.Context, shot []byte) (*answer, error) {
	a.shots = append(a.shots, len(a.history))
	a.history = append(a.history, say("user", []object{text(fmt.Sprintf("Step %d. The screen is:", len(a.shots))), picture(shot, "high")}))
	if n := len(a.shots) - 1 - a.keep; n >= 0 {
		i := a.shots[n]
		a.history[i] = say("user", []object{text(fmt.Sprintf("Step %d. The screen is:", n+1)), text(pruned)})
	}
	r, err := post(ctx, a.url, a.session, a.history)
	if err != nil {
		return nil, err
	}
	a.history = append(a.history, say("assistant", r.Choices[0].Message.Content))
	return r, nil
}
