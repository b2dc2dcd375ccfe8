package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Bounds on what a file may announce. They are far above any real model (a 400
// layer model has about 4,000 tensors) and keep a forged header from costing more
// than a short loop.
const (
	maxEntries   = 1 << 20 // metadata keys, and tensors
	maxNameBytes = 1 << 16
	maxDims      = 4
	maxElements  = math.MaxInt64 / 64
	version      = 3
	// defaultAlign is the alignment of tensor data when general.alignment is absent.
	defaultAlign = 32
	maxAlign     = 1 << 20
)

const magic = "GGUF"

// File is a parsed GGUF file. Tensor data stays in the bytes that Parse was
// given, which the caller must keep alive and unchanged.
type File struct {
	Align   int
	Keys    []string // metadata keys in the file's order
	Meta    map[string]any
	Tensors []Tensor // in the file's order

	byName map[string]int
}

// cursor reads the file from front to back.
type cursor struct {
	b   []byte
	off uint64
}

func (c *cursor) left() uint64 { return uint64(len(c.b)) - c.off }

func (c *cursor) take(n uint64) ([]byte, error) {
	if n > c.left() {
		return nil, fmt.Errorf("%d bytes wanted at byte %d of %d: %w", n, c.off, len(c.b), ErrTruncated)
	}
	b := c.b[c.off : c.off+n]
	c.off += n
	return b, nil
}

func (c *cursor) u32() (uint32, error) {
	b, err := c.take(4)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(b), nil
}

func (c *cursor) u64() (uint64, error) {
	b, err := c.take(8)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b), nil
}

func (c *cursor) str() (string, error) {
	n, err := c.u64()
	if err != nil {
		return "", err
	}
	b, err := c.take(n)
	return string(b), err
}

// Parse reads a GGUF v3 file. It checks every count and offset against the bytes
// that are there and never panics. Errors wrap ErrTruncated, ErrUnsupported or
// ErrFormat.
func Parse(b []byte) (*File, error) {
	c := &cursor{b: b}
	tensors, keys, err := c.header()
	if err != nil {
		return nil, fmt.Errorf("gguf header: %w", err)
	}
	f := &File{Align: defaultAlign, Meta: map[string]any{}, byName: map[string]int{}}
	for i := range keys {
		if err := f.readKey(c); err != nil {
			return nil, fmt.Errorf("gguf metadata entry %d of %d: %w", i, keys, err)
		}
	}
	if err := f.readAlign(); err != nil {
		return nil, err
	}
	offsets := make([]uint64, 0, min(tensors, 1024))
	for i := range tensors {
		off, err := f.readTensor(c)
		if err != nil {
			return nil, fmt.Errorf("gguf tensor entry %d of %d: %w", i, tensors, err)
		}
		offsets = append(offsets, off)
	}
	return f, f.attach(b, c.off, offsets)
}

// header reads magic, version and the two counts.
func (c *cursor) header() (tensors, keys uint64, err error) {
	m, err := c.take(4)
	if err != nil {
		return 0, 0, err
	}
	if string(m) != magic {
		return 0, 0, fmt.Errorf("magic is %q, want %q: not a GGUF file: %w", m, magic, ErrFormat)
	}
	v, err := c.u32()
	if err != nil {
		return 0, 0, err
	}
	if v != version {
		return 0, 0, fmt.Errorf("version %d (only %d is read; a huge number means a big-endian file): %w", v, version, ErrUnsupported)
	}
	if tensors, err = c.u64(); err != nil {
		return 0, 0, err
	}
	if keys, err = c.u64(); err != nil {
		return 0, 0, err
	}
	if tensors > maxEntries || keys > maxEntries {
		return 0, 0, fmt.Errorf("%d tensors and %d metadata entries announced, at most %d are allowed: %w", tensors, keys, maxEntries, ErrFormat)
	}
	return tensors, keys, nil
}

func (c *cursor) name() (string, error) {
	s, err := c.str()
	if err == nil && (s == "" || len(s) > maxNameBytes) {
		err = fmt.Errorf("name of %d bytes at byte %d: %w", len(s), c.off, ErrFormat)
	}
	return s, err
}

func (f *File) readKey(c *cursor) error {
	key, err := c.name()
	if err != nil {
		return err
	}
	if _, twice := f.Meta[key]; twice {
		return fmt.Errorf("key %q appears twice: %w", key, ErrFormat)
	}
	tag, err := c.u32()
	if err != nil {
		return err
	}
	v, err := c.value(ValueType(tag), 0)
	if err != nil {
		return fmt.Errorf("key %q: %w", key, err)
	}
	f.Keys, f.Meta[key] = append(f.Keys, key), v
	return nil
}

func (f *File) readAlign() error {
	v, ok := f.Meta["general.alignment"]
	if !ok {
		return nil
	}
	a, ok := v.(uint32)
	if !ok || a == 0 || a > maxAlign || a&(a-1) != 0 {
		return fmt.Errorf("general.alignment is %v, want a power of two up to %d: %w", v, maxAlign, ErrFormat)
	}
	f.Align = int(a)
	return nil
}

// readTensor reads one entry of the tensor table and returns its data offset.
func (f *File) readTensor(c *cursor) (uint64, error) {
	name, err := c.name()
	if err != nil {
		return 0, err
	}
	if _, twice := f.byName[name]; twice {
		return 0, fmt.Errorf("tensor %q appears twice: %w", name, ErrFormat)
	}
	n, err := c.u32()
	if err != nil {
		return 0, err
	}
	if n == 0 || n > maxDims {
		return 0, fmt.Errorf("tensor %q has %d dimensions, want 1 to %d: %w", name, n, maxDims, ErrFormat)
	}
	t := Tensor{Name: name}
	elements := uint64(1)
	for range n {
		d, err := c.u64()
		if err != nil {
			return 0, err
		}
		if d == 0 || d > maxElements/elements {
			return 0, fmt.Errorf("tensor %q has a dimension of %d: %w", name, d, ErrFormat)
		}
		elements *= d
		t.Dims = append(t.Dims, int(d))
	}
	typ, err := c.u32()
	if err != nil {
		return 0, err
	}
	t.Type = TensorType(typ)
	if t.Type == Q8_0 && t.Dims[0]%QBlock != 0 {
		return 0, fmt.Errorf("tensor %q is Q8_0 with rows of %d, want a multiple of %d: %w", name, t.Dims[0], QBlock, ErrFormat)
	}
	off, err := c.u64()
	f.byName[name] = len(f.Tensors)
	f.Tensors = append(f.Tensors, t)
	return off, err
}

// attach points every tensor at its bytes. The data section starts at the first
// aligned byte after the tensor table.
func (f *File) attach(b []byte, end uint64, offsets []uint64) error {
	align := uint64(f.Align)
	start := (end + align - 1) / align * align
	for i, off := range offsets {
		t := &f.Tensors[i]
		if off%align != 0 {
			return fmt.Errorf("gguf tensor %q at offset %d, not a multiple of %d: %w", t.Name, off, align, ErrFormat)
		}
		if start > uint64(len(b)) || off > uint64(len(b))-start {
			return fmt.Errorf("gguf tensor %q starts at byte %d+%d of %d: %w", t.Name, start, off, len(b), ErrTruncated)
		}
		if !t.Type.Known() {
			continue
		}
		data := b[start+off:]
		size := t.Type.rowBytes(uint64(t.Cols())) * uint64(t.Rows())
		if size > uint64(len(data)) {
			return fmt.Errorf("gguf tensor %q needs %d bytes at byte %d, %d are there: %w", t.Name, size, start+off, len(data), ErrTruncated)
		}
		t.Data = data[:size:size]
	}
	return nil
}

// Tensor finds a tensor by name; nil when there is none.
func (f *File) Tensor(name string) *Tensor {
	i, ok := f.byName[name]
	if !ok {
		return nil
	}
	return &f.Tensors[i]
}

// Uint reads an unsigned or signed integer key of any width. ok is false when the
// key is absent; a value of another type or below zero is an error.
func (f *File) Uint(key string) (n uint64, ok bool, err error) {
	v, ok := f.Meta[key]
	if !ok {
		return 0, false, nil
	}
	signed := int64(0)
	switch x := v.(type) {
	case uint8:
		return uint64(x), true, nil
	case uint16:
		return uint64(x), true, nil
	case uint32:
		return uint64(x), true, nil
	case uint64:
		return x, true, nil
	case int8:
		signed = int64(x)
	case int16:
		signed = int64(x)
	case int32:
		signed = int64(x)
	case int64:
		signed = x
	default:
		return 0, true, wrongType(key, v, "an integer")
	}
	if signed < 0 {
		return 0, true, fmt.Errorf("gguf key %q is %d, want a number above or equal 0: %w", key, signed, ErrFormat)
	}
	return uint64(signed), true, nil
}

// Get reads a key that must have type T. ok is false when the key is absent.
func Get[T any](f *File, key string) (v T, ok bool, err error) {
	raw, ok := f.Meta[key]
	if !ok {
		return v, false, nil
	}
	v, fits := raw.(T)
	if !fits {
		return v, true, wrongType(key, raw, fmt.Sprintf("%T", v))
	}
	return v, true, nil
}

func wrongType(key string, v any, want string) error {
	return fmt.Errorf("gguf key %q has type %s, want %s: %w", key, fmt.Sprintf("%T", v), want, ErrFormat)
}
