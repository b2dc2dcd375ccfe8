package tokenizer

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	_ "image/gif"  // its header
	_ "image/jpeg" // likewise
	_ "image/png"  // likewise
	"net/url"
	"strconv"
	"strings"

	"github.com/weir-dev/weir/schemas"
)

// maxSide bounds width and height in pixels: WebP's bound is 2^14, JPEG's 2^16.
const maxSide = 1 << 16

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
		content, w, h, err = inline(rest)
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
		if *to, err = strconv.Atoi(text); err != nil || *to < 0 || *to > maxSide {
			return "", 0, 0, fmt.Errorf("the image's %s is %q, allowed are 0 to %d pixels", name, text, maxSide)
		}
	}
	return content, w, h, nil
}

// inline reads what stands behind the scheme of a data: URL (RFC 2397) with base64. The size comes from the bytes,
// whatever type the URL names: clients often name the wrong one.
func inline(data string) (content string, w, h int, err error) {
	head, text, ok := strings.Cut(data, ",")
	if !ok || !strings.HasSuffix(strings.ToLower(head), ";base64") {
		return "", 0, 0, errors.New("a data: URL must be of the form data:image/png;base64,…")
	}
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		if b, err = base64.RawStdEncoding.DecodeString(text); err != nil {
			return "", 0, 0, fmt.Errorf("the base64 of the data: URL is broken: %w", err)
		}
	}
	if w, h, err = dimensions(b); err != nil {
		return "", 0, 0, err
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), w, h, nil
}

// dimensions reads width and height from the head of a PNG, JPEG, GIF or WebP file.
func dimensions(b []byte) (w, h int, err error) {
	if len(b) >= 30 && string(b[:4]) == "RIFF" && string(b[8:12]) == "WEBP" {
		w, h = webp(b)
	} else {
		c, _, err := image.DecodeConfig(bytes.NewReader(b))
		if err != nil {
			return 0, 0, fmt.Errorf("the %d bytes are no PNG, JPEG, GIF or WebP image: %w", len(b), err)
		}
		w, h = c.Width, c.Height
	}
	if w < 1 || h < 1 || w > maxSide || h > maxSide {
		return 0, 0, fmt.Errorf("the image has %d by %d pixels, allowed are 1 to %d", w, h, maxSide)
	}
	return w, h, nil
}

// webp reads the size from the first chunk of a WebP file, 0 for a broken one.
// Source of the three forms: RFC 9649, sections 2.5 to 2.7.
func webp(b []byte) (w, h int) {
	switch string(b[12:16]) {
	case "VP8X": // 24 bits each, less one
		return 1 + int(b[24]) + int(b[25])<<8 + int(b[26])<<16, 1 + int(b[27]) + int(b[28])<<8 + int(b[29])<<16
	case "VP8L": // a signature byte, then 14 bits each, less one
		if b[20] != 0x2F {
			return 0, 0
		}
		bits := binary.LittleEndian.Uint32(b[21:])
		return 1 + int(bits&0x3FFF), 1 + int(bits>>14&0x3FFF)
	case "VP8 ": // a frame tag, a start code, then 14 bits each
		if b[23] != 0x9D || b[24] != 0x01 || b[25] != 0x2A {
			return 0, 0
		}
		return int(binary.LittleEndian.Uint16(b[26:]) & 0x3FFF), int(binary.LittleEndian.Uint16(b[28:]) & 0x3FFF)
	}
	return 0, 0
}
