package turns

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"image"
	"image/gif"
	"image/jpeg"
	"image/png"
	"strings"
)

// ReadDataURL reads an image from a data: URL (RFC 2397, base64 only). It returns the
// image's bytes and the reference under which they are stored. The content decides
// what the image is: clients often name another type than they send. The error says
// what is wrong with it.
func ReadDataURL(url string) (ref MediaRef, image []byte, err error) {
	b, err := decodeDataURL(url)
	if err != nil {
		return MediaRef{}, nil, err
	}
	if len(b) > MaxMediaBytes {
		return MediaRef{}, nil, fmt.Errorf("the image has %d bytes, at most %d are allowed", len(b), MaxMediaBytes)
	}
	kind, w, h, err := identify(b)
	if err != nil {
		return MediaRef{}, nil, err
	}
	sum := sha256.Sum256(b)
	return MediaRef{Digest: hex.EncodeToString(sum[:]), Type: kind, Width: w, Height: h, Bytes: int64(len(b))}, b, nil
}

func decodeDataURL(s string) ([]byte, error) {
	const scheme = "data:"
	if !strings.EqualFold(s[:min(len(s), len(scheme))], scheme) {
		return nil, fmt.Errorf("%q is no data: URL", clip(s))
	}
	head, data, ok := strings.Cut(s[len(scheme):], ",")
	if !ok || len(head) > 256 {
		return nil, errors.New("the data: URL has no comma before its data, it must be of the form data:image/png;base64,…")
	}
	kind, params, _ := strings.Cut(head, ";")
	if !strings.HasPrefix(strings.ToLower(kind), "image/") {
		return nil, fmt.Errorf("the data: URL has type %q, an image is needed (%s)", clip(kind), typeNames)
	}
	if params != "base64" && !strings.HasSuffix(params, ";base64") {
		return nil, errors.New("the data: URL is not encoded in base64")
	}
	if base64.StdEncoding.DecodedLen(len(data)) > MaxMediaBytes+3 {
		return nil, fmt.Errorf("the image has about %d bytes, at most %d are allowed", len(data)/4*3, MaxMediaBytes)
	}
	enc := base64.StdEncoding
	if len(data)%4 != 0 && !strings.ContainsAny(data, "=\r\n") {
		enc = base64.RawStdEncoding
	}
	b, err := enc.DecodeString(data)
	if err != nil {
		return nil, fmt.Errorf("the data: URL is broken: %w", err)
	}
	if len(b) == 0 {
		return nil, errors.New("the data: URL is empty")
	}
	return b, nil
}

// identify tells an image's type and dimensions from its first bytes; the picture
// itself is not decoded.
func identify(b []byte) (kind string, w, h int, err error) {
	var c image.Config
	switch {
	case bytes.HasPrefix(b, []byte("\x89PNG\r\n\x1a\n")):
		kind = typePNG
		c, err = png.DecodeConfig(bytes.NewReader(b))
	case bytes.HasPrefix(b, []byte("\xff\xd8")):
		kind = typeJPEG
		c, err = jpeg.DecodeConfig(bytes.NewReader(b))
	case bytes.HasPrefix(b, []byte("GIF8")):
		kind = typeGIF
		c, err = gif.DecodeConfig(bytes.NewReader(b))
	case len(b) >= 12 && string(b[:4]) == "RIFF" && string(b[8:12]) == "WEBP":
		kind = typeWebP
		c.Width, c.Height, err = webpSize(b)
	default:
		return "", 0, 0, fmt.Errorf("the content is no image that is known here (%s)", typeNames)
	}
	if err != nil {
		return "", 0, 0, fmt.Errorf("the %s cannot be read: %w", kind, err)
	}
	w, h = c.Width, c.Height
	if w < 1 || h < 1 || w > MaxMediaSide || h > MaxMediaSide || w*h > MaxMediaPixels {
		return "", 0, 0, fmt.Errorf("the image has %d x %d pixels, allowed are 1 to %d per side and %d in all", w, h, MaxMediaSide, MaxMediaPixels)
	}
	return kind, w, h, nil
}

// webpSize reads the dimensions of a WebP file from its first chunk: RFC 9649,
// sections 2.5 (VP8), 2.6 (VP8L) and 2.7 (VP8X).
func webpSize(b []byte) (w, h int, err error) {
	le := binary.LittleEndian
	if len(b) < 30 {
		return 0, 0, errors.New("it ends in its header")
	}
	p := b[20:] // behind RIFF, size, WEBP, chunk name and chunk size
	switch name := string(b[12:16]); name {
	case "VP8 ":
		if p[3] != 0x9d || p[4] != 0x01 || p[5] != 0x2a {
			return 0, 0, errors.New("it does not begin with a key frame")
		}
		return int(le.Uint16(p[6:]) & 0x3fff), int(le.Uint16(p[8:]) & 0x3fff), nil
	case "VP8L":
		if p[0] != 0x2f {
			return 0, 0, errors.New("its lossless signature is missing")
		}
		bits := le.Uint32(p[1:])
		return int(bits&0x3fff) + 1, int(bits>>14&0x3fff) + 1, nil
	case "VP8X":
		u24 := func(q []byte) int { return int(q[0]) | int(q[1])<<8 | int(q[2])<<16 }
		return u24(p[4:]) + 1, u24(p[7:]) + 1, nil
	default:
		return 0, 0, fmt.Errorf("its first chunk is %q", name)
	}
}
