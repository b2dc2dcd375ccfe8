package llamacpp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/weir-dev/weir/gpuexec"
	"pgregory.net/rapid"
)

// drawLayout draws a layout as a model could have it; K and V may differ by layer.
func drawLayout(t *rapid.T) layout {
	l := layout{streams: rapid.IntRange(1, 5).Draw(t, "streams"), vTrans: rapid.Bool().Draw(t, "vTrans")}
	for range rapid.IntRange(1, 4).Draw(t, "layers") {
		k := layerLayout{kind: ggmlF16, rowBytes: 2 * rapid.IntRange(1, 9).Draw(t, "k")}
		v := layerLayout{kind: ggmlF16, rowBytes: 2 * rapid.IntRange(1, 9).Draw(t, "v")}
		if l.vTrans {
			v.el, v.cols = 2, v.rowBytes/2
		}
		l.k, l.v = append(l.k, k), append(l.v, v)
	}
	return l
}

// fillState makes a state of n tokens with every K and V byte different from its
// neighbours.
func fillState(l *layout, n int) []byte {
	s := make([]byte, l.stateBytes(n))
	for i := range s {
		s[i] = byte(i*31 + i>>8)
	}
	l.writeHeader(s, 3, n)
	return s
}

// moveStream writes the empty streams of a state in front of the filled one, as the
// library does for a sequence in a later slot.
func moveStream(l *layout, s []byte, before int) []byte {
	filled := s[12 : len(s)-4*(l.streams-1)]
	out := bytes.Clone(s[:12])
	out = append(out, make([]byte, 4*before)...)
	out = append(out, filled...)
	return append(out, make([]byte, 4*(l.streams-1-before))...)
}

// TestState: parsing gives the layout back, and cutting blocks out of a state and
// putting them together again gives the state back.
func TestState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLayout(t)
		count := rapid.IntRange(1, 3).Draw(t, "blocks")
		n := count*gpuexec.BlockTokens + rapid.IntRange(0, 63).Draw(t, "tail")
		state := fillState(&l, n)
		moved := moveStream(&l, state, rapid.IntRange(0, l.streams-1).Draw(t, "stream"))
		got, err := parseLayout(moved, n)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(l, got, cmp.AllowUnexported(layout{}, layerLayout{})); d != "" {
			t.Fatal(d)
		}
		start, err := l.locate(moved, n)
		if err != nil {
			t.Fatal(err)
		}
		cut := make([][]byte, count)
		for i := range cut {
			cut[i] = make([]byte, l.blockBytes())
		}
		l.copyBlocks(moved[start:], n, 0, cut, fromState)
		again := make([]byte, l.stateBytes(count*gpuexec.BlockTokens))
		l.writeHeader(again, 3, count*gpuexec.BlockTokens)
		l.copyBlocks(again[l.dataStart(0, count*gpuexec.BlockTokens):], count*gpuexec.BlockTokens, 0, cut, toState)
		for pos := range count * gpuexec.BlockTokens {
			a := l.appendToken(nil, moved[start:], n, pos)
			b := l.appendToken(nil, again[l.dataStart(0, count*gpuexec.BlockTokens):], count*gpuexec.BlockTokens, pos)
			if len(a) != l.tokenBytes() || !bytes.Equal(a, b) {
				t.Fatalf("token %d: %x, after cutting and joining %x", pos, a, b)
			}
		}
		one := [][]byte{make([]byte, l.blockBytes())}
		l.copyBlocks(moved[start:], n, count-1, one, fromState)
		if !bytes.Equal(one[0], cut[count-1]) {
			t.Fatal("the last block alone differs")
		}
	})
}

// TestBadState: a state that is cut, longer, or of another kind is an error.
func TestBadState(t *testing.T) {
	l := layout{streams: 3, k: []layerLayout{{ggmlF16, 4, 0, 0}}, v: []layerLayout{{ggmlF16, 6, 0, 0}}}
	good := fillState(&l, 2)
	if _, err := parseLayout(good, 2); err != nil {
		t.Fatal(err)
	}
	change := func(at int, v uint32) []byte {
		b := bytes.Clone(good)
		binary.LittleEndian.PutUint32(b[at:], v)
		return b
	}
	bad := map[string][]byte{
		"empty": nil, "longer": append(bytes.Clone(good), 0), "magic": change(0, 1), "no streams": change(8, 0),
		"many streams": change(8, 1<<31), "cells": change(12, 3), "position": change(16, 9), "shared cell": change(20, 2),
		"v_trans": change(40, 2), "no layers": change(44, 0), "many layers": change(44, 1<<30), "k row": change(52, 1<<30),
		"huge k row": change(56, 1<<30), "second stream": change(len(good)-4, 1),
	}
	for i := range good {
		if _, err := parseLayout(good[:i], 2); err == nil {
			t.Errorf("a state cut at byte %d is accepted", i)
		}
	}
	for name, b := range bad {
		if _, err := parseLayout(b, 2); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	for name, b := range map[string][]byte{
		"cut": good[:len(good)-1], "magic": change(0, 1), "streams": change(8, 2), "count": change(12, 3),
		"out of order": change(16, 1), "shared": change(20, 2),
	} {
		if _, err := l.locate(b, 2); !errors.Is(err, gpuexec.ErrBadBlock) {
			t.Errorf("locate, %s: %v", name, err)
		}
	}
}

func FuzzParseLayout(f *testing.F) {
	l := layout{streams: 2, k: []layerLayout{{ggmlF16, 4, 0, 0}}, v: []layerLayout{{ggmlF16, 4, 2, 2}}, vTrans: true}
	f.Add(fillState(&l, 2), 2)
	l = layout{streams: 2, k: []layerLayout{{ggmlF16, 4, 0, 0}}, v: []layerLayout{{ggmlF16, 6, 0, 0}}}
	f.Add(fillState(&l, 1), 1)
	f.Fuzz(func(t *testing.T, state []byte, n int) {
		if n < 1 || n > 1<<20 {
			return
		}
		l, err := parseLayout(state, n)
		if err == nil && l.stateBytes(n) != len(state) {
			t.Errorf("%d bytes are understood, the layout says %d", len(state), l.stateBytes(n))
		}
	})
}
