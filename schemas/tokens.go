package schemas

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
)

// Tokens is a list of token ids, written as a plain JSON array of integers.
// It has its own codec because a long prompt is mostly this array: reading takes
// about half the time of reflection, the number of tokens is bounded before memory
// is taken, and a nil list is written as []. The price is paid in writing, which
// takes about twice as long, because encoding/json scans again what MarshalJSON
// returns. The benchmarks of tokens_test.go show both.
type Tokens []int32

// MaxTokens bounds one token array: no model of today has a longer context, and
// a bound keeps a hostile message from taking the memory of a service.
const MaxTokens = 4 << 20

// MarshalJSON writes [1,2,3]; a nil list is [].
func (t Tokens) MarshalJSON() ([]byte, error) {
	b := make([]byte, 0, 2+6*len(t))
	b = append(b, '[')
	for i, v := range t {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(v), 10)
	}
	return append(b, ']'), nil
}

// UnmarshalJSON reads an array of integers in the range of int32, or null.
func (t *Tokens) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*t = nil
		return nil
	}
	if len(b) < 2 || b[0] != '[' || b[len(b)-1] != ']' {
		return fmt.Errorf("%w: tokens must be an array of integers", ErrMessage)
	}
	n := 1 + bytes.Count(b, []byte{','})
	if n > MaxTokens {
		return fmt.Errorf("%w: %d tokens in one array, at most %d", ErrTooLarge, n, MaxTokens)
	}
	out := make([]int32, 0, n)
	i, end := 1, len(b)-1
	for {
		i = skipSpace(b, i)
		if i >= end {
			break
		}
		v, next, err := scanToken(b, i, end)
		if err != nil {
			return err
		}
		out = append(out, v)
		i = skipSpace(b, next)
		if i >= end {
			break
		}
		if b[i] != ',' {
			return fmt.Errorf("%w: unexpected %q in a token array", ErrMessage, b[i])
		}
		i++
		if skipSpace(b, i) >= end {
			return fmt.Errorf("%w: a token array ends with a comma", ErrMessage)
		}
	}
	*t = out
	return nil
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

func scanToken(b []byte, i, end int) (v int32, next int, err error) {
	start, neg := i, false
	if b[i] == '-' {
		neg = true
		i++
	}
	var n int64
	digits := 0
	for i < end && b[i] >= '0' && b[i] <= '9' {
		n = n*10 + int64(b[i]-'0')
		if n > math.MaxInt32+1 {
			return 0, 0, fmt.Errorf("%w: token %s… is out of range", ErrMessage, b[start:min(i, start+12)])
		}
		i++
		digits++
	}
	if neg {
		n = -n
	}
	if digits == 0 || n > math.MaxInt32 {
		return 0, 0, fmt.Errorf("%w: %q is not a token id", ErrMessage, b[start:min(end, start+12)])
	}
	return int32(n), i, nil
}
