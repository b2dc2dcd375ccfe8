package turns

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/weir-dev/weir/schemas"
)

// MediaScheme begins the URL of a stored image in a message.
const MediaScheme = "weir-media:"

// MediaRef names a stored image: the object Digest of the PAYLOAD bucket. In a
// message it stands where a data: URL would stand, as
//
//	weir-media:<sha256 in hex>?type=image/png&w=1456&h=819&bytes=1048576
type MediaRef struct {
	Digest        string // SHA-256 of the image's bytes, 64 hex digits
	Type          string // image/png, image/jpeg, image/gif or image/webp
	Width, Height int    // pixels
	Bytes         int64
}

// String is the URL. The same image always has the same.
func (m MediaRef) String() string {
	return fmt.Sprintf("%s%s?type=%s&w=%d&h=%d&bytes=%d", MediaScheme, m.Digest, m.Type, m.Width, m.Height, m.Bytes)
}

// ParseMediaRef reads and checks a URL that begins with MediaScheme. It accepts
// parameters in any order. The error says what is wrong with it.
func ParseMediaRef(s string) (MediaRef, error) {
	rest, ok := strings.CutPrefix(s, MediaScheme)
	if !ok || len(s) > 512 {
		return MediaRef{}, fmt.Errorf("a reference to stored media has the form %s<sha256>?type=…&w=…&h=…&bytes=…", MediaScheme)
	}
	digest, query, _ := strings.Cut(rest, "?")
	m := MediaRef{Digest: digest}
	if len(digest) != 64 || strings.Trim(digest, "0123456789abcdef") != "" {
		return m, fmt.Errorf("the digest of stored media must be 64 hex digits in lower case, got %q", clip(digest))
	}
	q, err := url.ParseQuery(query)
	if err != nil {
		return m, fmt.Errorf("the parameters %q of stored media cannot be read", clip(query))
	}
	if m.Type = q.Get("type"); !knownTypes[m.Type] {
		return m, fmt.Errorf("type is %q, known are %s", clip(m.Type), typeNames)
	}
	for _, f := range [...]struct {
		name string
		most int64
		set  func(int64)
	}{
		{"w", MaxMediaSide, func(n int64) { m.Width = int(n) }},
		{"h", MaxMediaSide, func(n int64) { m.Height = int(n) }},
		{"bytes", MaxMediaBytes, func(n int64) { m.Bytes = n }},
	} {
		n, err := strconv.ParseInt(q.Get(f.name), 10, 64)
		if err != nil || n < 1 || n > f.most {
			return m, fmt.Errorf("%s of stored media is %q, allowed are 1 to %d", f.name, clip(q.Get(f.name)), f.most)
		}
		f.set(n)
	}
	return m, nil
}

// Bounds of media.
const (
	// MaxMediaBytes bounds one image; the bucket takes no larger object.
	MaxMediaBytes = schemas.MaxBody
	// MaxMediaSide and MaxMediaPixels bound its dimensions: a small file may unpack
	// into a huge picture.
	MaxMediaSide   = 16384
	MaxMediaPixels = 64 << 20
	// MaxMediaParts bounds the images of one turn.
	MaxMediaParts = 128
	// MaxRequest bounds a body with its images in it, in bytes. Without them
	// schemas.MaxBody holds: a long session of screenshots is mostly base64.
	MaxRequest = 4 * schemas.MaxBody
)

// The types of images, as data: URLs and references have them.
const (
	typePNG  = "image/png"
	typeJPEG = "image/jpeg"
	typeGIF  = "image/gif"
	typeWebP = "image/webp"
)

var knownTypes = map[string]bool{typePNG: true, typeJPEG: true, typeGIF: true, typeWebP: true}

const typeNames = "image/png, image/jpeg, image/gif, image/webp"

// clip keeps an error's text short, whatever a caller sent.
func clip(s string) string {
	const most = 40
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
