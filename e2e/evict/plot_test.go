package evict

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

func chart() *Chart {
	xs := []float64{1, 2, 3, 4, 5, 6, 7, 8}
	return &Chart{Title: "hit rate by capacity", X: "capacity, M tokens", Y: "token hit rate", Series: []Series{
		{"belady", xs, []float64{.5, .6, .7, .8, .85, .86, .87, .87}},
		{"weir", xs, []float64{.3, .45, .6, .75, .83, .85, .87, .87}},
		{"lru", xs, []float64{.1, .2, .4, .6, .75, .82, .86, .87}},
	}}
}

func TestSVG(t *testing.T) {
	var a, b bytes.Buffer
	if err := chart().SVG(&a); err != nil {
		t.Fatal(err)
	}
	if err := chart().SVG(&b); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Error("one chart gave two images")
	}
	d := xml.NewDecoder(bytes.NewReader(a.Bytes()))
	var text strings.Builder
	paths := 0
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch x := tok.(type) {
		case xml.CharData:
			text.Write(x)
		case xml.StartElement:
			if x.Name.Local == "path" {
				paths++
			}
		}
	}
	for _, want := range []string{"hit rate by capacity", "capacity, M tokens", "token hit rate", "belady", "weir", "lru"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the image does not say %q", want)
		}
	}
	if paths < 3*9 {
		t.Errorf("the image has %d paths, fewer than its points", paths)
	}
}

func TestText(t *testing.T) {
	var b strings.Builder
	if err := chart().Text(&b); err != nil {
		t.Fatal(err)
	}
	out := b.String()
	for letter, n := range map[string]int{"A": 9, "B": 5, "C": 7} { // one of each in the legend; lines meet at the end
		if got := strings.Count(out, letter); got < n {
			t.Errorf("%s stands %d times, want %d:\n%s", letter, got, n, out)
		}
	}
	if !strings.Contains(out, "A belady   B weir   C lru") {
		t.Errorf("no legend:\n%s", out)
	}
}

func TestBadCharts(t *testing.T) {
	for name, c := range map[string]*Chart{
		"empty":  {Title: "x"},
		"ragged": {Title: "x", Series: []Series{{"a", []float64{1}, nil}}},
	} {
		if err := c.SVG(io.Discard); err == nil {
			t.Errorf("%s: an image was made", name)
		}
		if err := c.Text(io.Discard); err == nil {
			t.Errorf("%s: a text was made", name)
		}
	}
	flat := &Chart{Series: []Series{{"a", []float64{1, 1}, []float64{2, 2}}}}
	if err := flat.Text(io.Discard); err != nil {
		t.Error(err)
	}
	if err := flat.SVG(io.Discard); err != nil {
		t.Error(err)
	}
}
