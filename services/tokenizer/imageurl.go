package tokenizer

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/turns"
)

// image reads the value of an image_url part. at names the part in errors.
func (s *source) image(raw json.RawMessage, at string) (*img, *schemas.Failure) {
	at += ".image_url"
	var v struct {
		URL    string `json:"url"`
		Detail string `json:"detail"`
	}
	if json.Unmarshal(raw, &v.URL) != nil && json.Unmarshal(raw, &v) != nil || v.URL == "" {
		return nil, invalid(at, "%s must be an object with a url", at)
	}
	switch v.Detail {
	case "":
		v.Detail = "auto"
	case "auto", "low", "high":
	default:
		return nil, invalid(at+".detail", "%q is not one of auto, low, high", v.Detail)
	}
	scheme, rest, found := strings.Cut(v.URL, ":")
	if !found {
		scheme = ""
	}
	var im img
	var content string
	var w, h int
	var err error
	switch strings.ToLower(scheme) {
	case "data":
		var ref turns.MediaRef
		ref, _, err = turns.ReadDataURL(v.URL)
		content, w, h = ref.Digest, ref.Width, ref.Height
	case "weir-media":
		content, w, h, err = reference(rest)
		im.ref = content
	case "http", "https":
		return nil, invalid(at+".url", "images are not fetched from the web here; send the image itself as a data: URL (data:image/png;base64,…)")
	default:
		return nil, invalid(at+".url", "%.40q is no URL of an image; send it as a data: URL (data:image/png;base64,…)", v.URL)
	}
	if err != nil {
		return nil, invalid(at+".url", "%s: %s", at, err)
	}
	sum := sha256.Sum256([]byte("weir-media\n" + content + "\ndetail=" + v.Detail + "\n"))
	im.digest = hex.EncodeToString(sum[:])
	im.vague = w == 0 || h == 0
	im.tokens = s.model.Vision.Tokens(w, h)
	return &im, nil
}

// reference reads what stands behind the scheme of a stored image's reference, as
// services/turns makes it:
// weir-media:<SHA-256 in hex>?type=image/png&w=1456&h=819&bytes=1048576
// Width and height are 0 where it does not tell them.
func reference(ref string) (content string, w, h int, err error) {
	content, query, _ := strings.Cut(ref, "?")
	if b, err := hex.DecodeString(content); err != nil || len(b) != sha256.Size || strings.ToLower(content) != content {
		return "", 0, 0, fmt.Errorf("%.80q does not name an image by its SHA-256 in hex", ref)
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return "", 0, 0, fmt.Errorf("the query of %.80q cannot be read: %w", ref, err)
	}
	for name, to := range map[string]*int{"w": &w, "h": &h} {
		text := values.Get(name)
		if text == "" {
			continue
		}
		if *to, err = strconv.Atoi(text); err != nil || *to < 0 || *to > turns.MaxMediaSide {
			return "", 0, 0, fmt.Errorf("the image's %s is %q, allowed are 0 to %d pixels", name, text, turns.MaxMediaSide)
		}
	}
	return content, w, h, nil
}
