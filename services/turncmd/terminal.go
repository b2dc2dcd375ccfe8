package turncmd

import (
	"io"
	"os"
	"strings"
)

// visible makes a model's output harmless for a terminal: control characters,
// with which it could move the cursor or rename the window, become U+FFFD. Into a
// file or pipe the text goes as it is.
type visible struct{ w io.Writer }

// forTerminal wraps w when it is a terminal.
func forTerminal(w io.Writer) io.Writer {
	f, ok := w.(*os.File)
	if !ok {
		return w
	}
	if st, err := f.Stat(); err != nil || st.Mode()&os.ModeCharDevice == 0 {
		return w
	}
	return visible{w}
}

// Write implements io.Writer; p is whole UTF-8 text.
func (v visible) Write(p []byte) (int, error) {
	s := strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || r >= 0x20 && r != 0x7f && (r < 0x80 || r >= 0xa0) {
			return r
		}
		return '\ufffd'
	}, string(p))
	if _, err := io.WriteString(v.w, s); err != nil {
		return 0, err
	}
	return len(p), nil
}
