package badinput

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"
)

// post sends a body to the gateway.
func post(ctx context.Context, base, path string, body []byte) Outcome {
	o, _ := postHeaders(ctx, base, path, body)
	return o
}

// postHeaders is post; it returns the response's headers too. Keys and values of
// further request headers follow the body.
func postHeaders(ctx context.Context, base, path string, body []byte, headers ...string) (Outcome, http.Header) {
	if path == "" {
		path = "/v1/chat/completions"
	}
	began := time.Now()
	o := Outcome{Way: "http", Code: "none"}
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+path, bytes.NewReader(body))
	if err != nil {
		o.Text = err.Error()
		return o, nil
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		o.Text = err.Error()
		return o, nil
	}
	defer func() { _ = res.Body.Close() }() // it was read to its end
	b, err := io.ReadAll(res.Body)
	o.Status, o.Took = res.StatusCode, time.Since(began)
	if err != nil {
		o.Text = err.Error()
		return o, res.Header
	}
	var answer struct {
		Error *struct {
			Message string `json:"message"`
			Code    string `json:"code"`
		} `json:"error"`
		Choices []json.RawMessage `json:"choices"`
	}
	switch err := json.Unmarshal(b, &answer); {
	case err != nil:
		o.Text = "the response is not JSON: " + string(b[:min(len(b), 200)])
	case answer.Error != nil:
		o.Code, o.Text = answer.Error.Code, answer.Error.Message
	case len(answer.Choices) == 1:
		o.Code, o.Text = Answered, string(answer.Choices[0])
	default:
		o.Text = "neither an error nor one choice: " + string(b[:min(len(b), 200)])
	}
	return o, res.Header
}
