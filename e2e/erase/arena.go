package erase

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// pageBytes is the unit in which KV memory is compared. Blocks begin at page borders.
const pageBytes = 4096

// pages are the contents that KV memory has, page by page, without empty ones.
type pages map[[sha256.Size]byte]bool

// readPages reads all files of a folder. Pages that are empty but for a few bytes, such
// as tables, are left out: a block's numbers fill a page.
func readPages(dir string) (pages, error) {
	out := pages{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }() // only read
		buf := make([]byte, pageBytes)
		for {
			n, err := io.ReadFull(f, buf)
			if n == pageBytes && bytes.Count(buf, []byte{0}) < pageBytes/2 {
				out[sha256.Sum256(buf)] = true
			}
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return nil
			}
			if err != nil {
				return err
			}
		}
	})
	return out, err
}

// minus are the pages that o does not have.
func (p pages) minus(o pages) pages {
	out := pages{}
	for h := range p {
		if !o[h] {
			out[h] = true
		}
	}
	return out
}

// common counts the pages that both have.
func (p pages) common(o pages) (n int) {
	for h := range p {
		if o[h] {
			n++
		}
	}
	return n
}
