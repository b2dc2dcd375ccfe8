package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
)

// ValueType is the type tag of a metadata value.
type ValueType uint32

// The metadata value types of GGUF v3.
const (
	TypeUint8 ValueType = iota
	TypeInt8
	TypeUint16
	TypeInt16
	TypeUint32
	TypeInt32
	TypeFloat32
	TypeBool
	TypeString
	TypeArray
	TypeUint64
	TypeInt64
	TypeFloat64
)

// fixedBytes is the encoded size of a value type, 0 for strings and arrays, -1
// for a tag that GGUF v3 does not have.
func (t ValueType) fixedBytes() int {
	switch t {
	case TypeUint8, TypeInt8, TypeBool:
		return 1
	case TypeUint16, TypeInt16:
		return 2
	case TypeUint32, TypeInt32, TypeFloat32:
		return 4
	case TypeUint64, TypeInt64, TypeFloat64:
		return 8
	case TypeString, TypeArray:
		return 0
	}
	return -1
}

// maxNesting bounds arrays of arrays: no known model has any, and without a
// bound a small file could recurse without end.
const maxNesting = 4

// value reads one metadata value. Arrays become typed slices ([]string,
// []float32, []int32, …, or []any for arrays of arrays).
func (c *cursor) value(t ValueType, depth int) (any, error) {
	switch t {
	case TypeString:
		return c.str()
	case TypeArray:
		return c.array(depth)
	}
	n := t.fixedBytes()
	if n < 0 {
		return nil, fmt.Errorf("value type %d at byte %d: %w", t, c.off, ErrUnsupported)
	}
	b, err := c.take(uint64(n))
	if err != nil {
		return nil, err
	}
	return scalar(t, b)
}

// scalar decodes one fixed-size value.
func scalar(t ValueType, b []byte) (any, error) {
	le := binary.LittleEndian
	switch t {
	case TypeUint8:
		return b[0], nil
	case TypeInt8:
		return int8(b[0]), nil
	case TypeUint16:
		return le.Uint16(b), nil
	case TypeInt16:
		return int16(le.Uint16(b)), nil
	case TypeUint32:
		return le.Uint32(b), nil
	case TypeInt32:
		return int32(le.Uint32(b)), nil
	case TypeFloat32:
		return math.Float32frombits(le.Uint32(b)), nil
	case TypeBool:
		if b[0] > 1 {
			return nil, fmt.Errorf("bool value %d: %w", b[0], ErrFormat)
		}
		return b[0] == 1, nil
	case TypeUint64:
		return le.Uint64(b), nil
	case TypeInt64:
		return int64(le.Uint64(b)), nil
	case TypeFloat64:
		return math.Float64frombits(le.Uint64(b)), nil
	}
	return nil, fmt.Errorf("value type %d: %w", t, ErrUnsupported)
}

// array reads an array value. Its length is checked against the bytes that are
// left before anything is allocated, so a forged count cannot exhaust memory.
func (c *cursor) array(depth int) (any, error) {
	if depth >= maxNesting {
		return nil, fmt.Errorf("arrays nested deeper than %d: %w", maxNesting, ErrUnsupported)
	}
	tag, err := c.u32()
	if err != nil {
		return nil, err
	}
	n, err := c.u64()
	if err != nil {
		return nil, err
	}
	t := ValueType(tag)
	size := t.fixedBytes()
	if size < 0 {
		return nil, fmt.Errorf("array of type %d at byte %d: %w", tag, c.off, ErrUnsupported)
	}
	least := uint64(size)
	switch t {
	case TypeString:
		least = 8 // the length word
	case TypeArray:
		least = 12 // type and count
	}
	if n > c.left()/least {
		return nil, fmt.Errorf("array of %d elements at byte %d, %d bytes left: %w", n, c.off, c.left(), ErrTruncated)
	}
	switch t {
	case TypeString:
		return readSlice(n, func() (string, error) { return c.str() })
	case TypeArray:
		return readSlice(n, func() (any, error) { return c.array(depth + 1) })
	}
	b, err := c.take(n * uint64(size))
	if err != nil {
		return nil, err
	}
	return fixedArray(t, b, size)
}

// readSlice reads n elements of variable size.
func readSlice[T any](n uint64, one func() (T, error)) ([]T, error) {
	out := make([]T, 0, n)
	for range n {
		v, err := one()
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// fixedArray decodes an array of fixed-size elements.
func fixedArray(t ValueType, b []byte, size int) (any, error) {
	switch t {
	case TypeUint8:
		return decodeAll[uint8](t, b, size)
	case TypeInt8:
		return decodeAll[int8](t, b, size)
	case TypeUint16:
		return decodeAll[uint16](t, b, size)
	case TypeInt16:
		return decodeAll[int16](t, b, size)
	case TypeUint32:
		return decodeAll[uint32](t, b, size)
	case TypeInt32:
		return decodeAll[int32](t, b, size)
	case TypeFloat32:
		return decodeAll[float32](t, b, size)
	case TypeBool:
		return decodeAll[bool](t, b, size)
	case TypeUint64:
		return decodeAll[uint64](t, b, size)
	case TypeInt64:
		return decodeAll[int64](t, b, size)
	}
	return decodeAll[float64](t, b, size)
}

func decodeAll[T any](t ValueType, b []byte, size int) (any, error) {
	out := make([]T, len(b)/size)
	for i := range out {
		v, err := scalar(t, b[i*size:])
		if err != nil {
			return nil, err
		}
		out[i] = v.(T)
	}
	return out, nil
}
