package turns

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams/jsrun"
)

// Images do not travel in turns. An agent sends the same screenshots at every step;
// each is stored once, under the digest of its bytes, and messages refer to it:
//
//	{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBOR…"}}
//	{"type":"image_url","image_url":{"url":"weir-media:<sha256>?type=image/png&w=…&h=…&bytes=…"}}
//
// The turn's digest is that of the second form, so it does not depend on which of
// the two a caller sent.

// putMedia replaces the images in a turn's messages by references to what it stores.
// The turn's messages are replaced, never changed in place. Errors are *FieldError,
// ErrBusy or ErrUnavailable.
func (c *Client) putMedia(ctx context.Context, turn *schemas.Turn) error {
	parts, copied := 0, false
	for i, raw := range turn.Messages {
		if !bytes.Contains(raw, []byte("image_url")) {
			continue
		}
		m := mediaMessage{c: c, i: i, parts: &parts}
		out, err := m.replace(ctx, raw)
		if err != nil {
			return err
		}
		if out == nil {
			continue
		}
		if !copied {
			turn.Messages, copied = slices.Clone(turn.Messages), true
		}
		turn.Messages[i] = out
	}
	return nil
}

// mediaMessage is the walk over one message.
type mediaMessage struct {
	c     *Client
	i     int  // index of the message
	parts *int // images of the turn so far
}

// replace returns the message with references, nil when nothing is to be replaced.
// Everything but the parts with images stays as it is, byte by byte.
func (m *mediaMessage) replace(ctx context.Context, raw json.RawMessage) (json.RawMessage, error) {
	content, at, ok := contentArray(raw)
	if !ok {
		return nil, nil // other forms are judged where the template is applied
	}
	var parts []json.RawMessage
	if json.Unmarshal(content, &parts) != nil {
		return nil, nil
	}
	changed := false
	for j, p := range parts {
		n, err := m.part(ctx, j, p)
		if err != nil {
			return nil, err
		}
		if n != nil {
			parts[j], changed = n, true
		}
	}
	if !changed {
		return nil, nil
	}
	out := append([]byte(nil), raw[:at]...)
	out = append(out, '[')
	for j, p := range parts {
		if j > 0 {
			out = append(out, ',')
		}
		out = append(out, p...)
	}
	return append(append(out, ']'), raw[at+len(content):]...), nil
}

// contentArray finds the array under "content" of a message and where it begins.
func contentArray(raw json.RawMessage) (content json.RawMessage, at int, ok bool) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, 0, false
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, 0, false
		}
		var v json.RawMessage
		if d.Decode(&v) != nil {
			return nil, 0, false
		}
		if key == "content" && len(v) > 0 && v[0] == '[' {
			// Of a key that stands there twice, readers take the last one.
			content, at, ok = v, int(d.InputOffset())-len(v), true
		}
	}
	return content, at, ok
}

// part returns the part with a reference, nil when it stays as it is.
func (m *mediaMessage) part(ctx context.Context, j int, raw json.RawMessage) (json.RawMessage, error) {
	var p struct {
		Type  string          `json:"type"`
		Image json.RawMessage `json:"image_url"`
	}
	var img struct {
		URL string `json:"url"`
	}
	if json.Unmarshal(raw, &p) != nil || p.Type != "image_url" {
		return nil, nil
	}
	if json.Unmarshal(p.Image, &img.URL) != nil && json.Unmarshal(p.Image, &img) != nil {
		return nil, nil
	}
	stored := strings.HasPrefix(img.URL, MediaScheme)
	if !stored && !strings.HasPrefix(strings.ToLower(img.URL[:min(len(img.URL), 5)]), "data:") {
		return nil, nil
	}
	if *m.parts++; *m.parts > MaxMediaParts {
		return nil, m.bad(j, fmt.Errorf("the turn has more than %d images", MaxMediaParts))
	}
	if stored {
		return nil, m.keep(ctx, j, img.URL)
	}
	ref, err := m.store(ctx, j, img.URL)
	if err != nil {
		return nil, err
	}
	return withURL(raw, p.Image, ref.String())
}

// withURL puts another url into a part. Its other fields stay; keys are sorted.
func withURL(part, image json.RawMessage, url string) (json.RawMessage, error) {
	var outer, inner map[string]json.RawMessage
	if err := json.Unmarshal(part, &outer); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	value, err := encodeJSON(url)
	if err != nil {
		return nil, err
	}
	if json.Unmarshal(image, &inner) == nil { // some clients send the URL alone
		inner["url"] = value
		if value, err = encodeJSON(inner); err != nil {
			return nil, err
		}
	}
	outer["image_url"] = value
	return encodeJSON(outer)
}

// encodeJSON is json.Marshal without \u escapes for &, < and >.
func encodeJSON(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// store puts the image of a data: URL into the bucket.
func (m *mediaMessage) store(ctx context.Context, j int, url string) (MediaRef, error) {
	ref, b, err := ReadDataURL(url)
	if err != nil {
		return MediaRef{}, m.bad(j, err)
	}
	p, err := m.c.bucket(ctx)
	if err != nil {
		return MediaRef{}, err
	}
	if _, err := p.Put(ctx, b); err != nil {
		return MediaRef{}, bucketError(err)
	}
	return ref, nil
}

// keep makes sure that what a reference names is there for as long as a turn may
// need it.
func (m *mediaMessage) keep(ctx context.Context, j int, url string) error {
	ref, err := ParseMediaRef(url)
	if err != nil {
		return m.bad(j, err)
	}
	p, err := m.c.bucket(ctx)
	if err != nil {
		return err
	}
	switch found, err := p.Keep(ctx, ref.Digest); {
	case err != nil:
		return bucketError(err)
	case !found:
		return m.bad(j, fmt.Errorf("the image %s… is not stored here, it may have aged out; send the image itself", ref.Digest[:12]))
	}
	return nil
}

func (m *mediaMessage) bad(j int, err error) error {
	at := fmt.Sprintf("messages[%d].content[%d].image_url", m.i, j)
	return &FieldError{Param: at, Message: at + ": " + err.Error()}
}

// bucketError is what a caller hears of a bucket that does not take something.
func bucketError(err error) error {
	if errors.Is(err, jsrun.ErrFull) {
		return &BusyError{RetryAfter: retryFull, Reason: "the store for images and large bodies is full"}
	}
	return fmt.Errorf("%w: storing an image: %w", ErrUnavailable, err)
}
