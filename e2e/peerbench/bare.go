package peerbench

import (
	"errors"
	"io"
	"net"
	"time"
)

// bare copies bytes over loopback connections: each is written in blocks from memory
// and read into memory that is there.
type bare struct {
	src, dst []byte
	out, in  []net.Conn
}

func newBare(streams, size int) (b *bare, err error) {
	b = &bare{src: make([]byte, size), dst: make([]byte, size)}
	for i := range b.src {
		b.src[i], b.dst[i] = byte(i), 1 // touches every page
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer ln.Close()
	for range streams {
		out, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			b.close()
			return nil, err
		}
		b.out = append(b.out, out)
		in, err := ln.Accept()
		if err != nil {
			b.close()
			return nil, err
		}
		b.in = append(b.in, in)
	}
	return b, nil
}

func (b *bare) close() {
	for _, c := range append(b.out, b.in...) {
		_ = c.Close()
	}
}

// copy moves all bytes once.
func (b *bare) copy() (time.Duration, error) {
	n := len(b.src) / len(b.out)
	done := make(chan error, 2*len(b.out))
	start := time.Now()
	for i := range b.out {
		src, dst := b.src[i*n:(i+1)*n], b.dst[i*n:(i+1)*n]
		go func() {
			for at := 0; at < n; at += blockBytes {
				if _, err := b.out[i].Write(src[at : at+blockBytes]); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
		go func() {
			_, err := io.ReadFull(b.in[i], dst)
			done <- err
		}()
	}
	var errs []error
	for range cap(done) {
		errs = append(errs, <-done)
	}
	return time.Since(start), errors.Join(errs...)
}
