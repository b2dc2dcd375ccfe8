package gguf

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

// Pair is one metadata entry to write. Value may be bool, int32, uint32, uint64,
// float32, string, []string, []float32 or []int32.
type Pair struct {
	Key   string
	Value any
}

// Source is one tensor to write. Rows are encoded one tensor at a time, so a
// model needs no more memory than its largest tensor.
type Source struct {
	Name string
	Dims []int
	Type TensorType
	// Values returns the elements, row after row; it is called once, in the order
	// of the tensor table.
	Values func() []float32
}

func (s *Source) elements() int {
	n := 1
	for _, d := range s.Dims {
		n *= d
	}
	return n
}

func (s *Source) bytes() uint64 {
	return s.Type.rowBytes(uint64(s.elements()))
}

// Write writes a GGUF v3 file with 32-byte alignment: meta in the order given
// (general.alignment is added after it), then the tensor table, then the data.
func Write(w io.Writer, meta []Pair, tensors []Source) error {
	head, err := header(meta, tensors)
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(w, 1<<18)
	if _, err := out.Write(padded(head)); err != nil {
		return fmt.Errorf("write gguf header: %w", err)
	}
	var buf []byte
	for i := range tensors {
		s := &tensors[i]
		x := s.Values()
		if len(x) != s.elements() {
			return fmt.Errorf("write gguf tensor %q: %d values for dimensions %v: %w", s.Name, len(x), s.Dims, ErrFormat)
		}
		buf = padded(s.Type.encode(buf[:0], x))
		if _, err := out.Write(buf); err != nil {
			return fmt.Errorf("write gguf tensor %q: %w", s.Name, err)
		}
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write gguf: %w", err)
	}
	return nil
}

// padded fills b with zeros up to the alignment.
func padded(b []byte) []byte {
	for len(b)%defaultAlign != 0 {
		b = append(b, 0)
	}
	return b
}

// header encodes everything before the tensor data.
func header(meta []Pair, tensors []Source) ([]byte, error) {
	le := binary.LittleEndian
	b := append([]byte(nil), magic...)
	b = le.AppendUint32(b, version)
	b = le.AppendUint64(b, uint64(len(tensors)))
	b = le.AppendUint64(b, uint64(len(meta)+1))
	for _, p := range append(meta[:len(meta):len(meta)], Pair{"general.alignment", uint32(defaultAlign)}) {
		b = appendString(b, p.Key)
		var err error
		if b, err = appendValue(b, p.Value); err != nil {
			return nil, fmt.Errorf("write gguf key %q: %w", p.Key, err)
		}
	}
	off := uint64(0)
	for i := range tensors {
		s := &tensors[i]
		if err := s.check(); err != nil {
			return nil, err
		}
		b = appendString(b, s.Name)
		b = le.AppendUint32(b, uint32(len(s.Dims)))
		for _, d := range s.Dims {
			b = le.AppendUint64(b, uint64(d))
		}
		b = le.AppendUint32(b, uint32(s.Type))
		b = le.AppendUint64(b, off)
		off += (s.bytes() + defaultAlign - 1) / defaultAlign * defaultAlign
	}
	return b, nil
}

func (s *Source) check() error {
	if len(s.Dims) == 0 || len(s.Dims) > maxDims || s.elements() <= 0 {
		return fmt.Errorf("write gguf tensor %q: dimensions %v: %w", s.Name, s.Dims, ErrFormat)
	}
	if !s.Type.Known() || s.Type == Q8_0 && s.Dims[0]%QBlock != 0 {
		return fmt.Errorf("write gguf tensor %q: %v with rows of %d: %w", s.Name, s.Type, s.Dims[0], ErrUnsupported)
	}
	return nil
}

func appendString(b []byte, s string) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(len(s)))
	return append(b, s...)
}

func appendValue(b []byte, v any) ([]byte, error) {
	le := binary.LittleEndian
	tag := func(t ValueType) []byte { return le.AppendUint32(b, uint32(t)) }
	list := func(t ValueType, n int) []byte {
		return le.AppendUint64(le.AppendUint32(tag(TypeArray), uint32(t)), uint64(n))
	}
	switch x := v.(type) {
	case bool:
		if x {
			return append(tag(TypeBool), 1), nil
		}
		return append(tag(TypeBool), 0), nil
	case int32:
		return le.AppendUint32(tag(TypeInt32), uint32(x)), nil
	case uint32:
		return le.AppendUint32(tag(TypeUint32), x), nil
	case uint64:
		return le.AppendUint64(tag(TypeUint64), x), nil
	case float32:
		return le.AppendUint32(tag(TypeFloat32), math.Float32bits(x)), nil
	case string:
		return appendString(tag(TypeString), x), nil
	case []string:
		b = list(TypeString, len(x))
		for _, s := range x {
			b = appendString(b, s)
		}
		return b, nil
	case []float32:
		b = list(TypeFloat32, len(x))
		for _, f := range x {
			b = le.AppendUint32(b, math.Float32bits(f))
		}
		return b, nil
	case []int32:
		b = list(TypeInt32, len(x))
		for _, i := range x {
			b = le.AppendUint32(b, uint32(i))
		}
		return b, nil
	}
	return nil, fmt.Errorf("value of type %T: %w", v, ErrUnsupported)
}
