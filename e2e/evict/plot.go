package evict

import (
	"fmt"
	"image/color"
	"io"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Series is one line of a plot: Y[i] at X[i].
type Series struct {
	Name string
	X, Y []float64
}

// Chart is lines over one axis.
type Chart struct {
	Title, X, Y string
	Series      []Series
}

// colours are told apart by people who see red and green alike: Okabe and Ito's, from
// https://jfly.uni-koeln.de/color.
var colours = []color.RGBA{
	{0, 114, 178, 255},
	{213, 94, 0, 255},
	{0, 158, 115, 255},
	{204, 121, 167, 255},
	{86, 180, 233, 255},
	{0, 0, 0, 255},
	{230, 159, 0, 255},
	{120, 120, 120, 255},
}

// check reports what cannot be drawn.
func (c *Chart) check() error {
	if len(c.Series) == 0 {
		return fmt.Errorf("evict: the chart %q has no line", c.Title)
	}
	for _, s := range c.Series {
		if len(s.X) != len(s.Y) || len(s.X) == 0 {
			return fmt.Errorf("evict: line %s of %q has %d places and %d values", s.Name, c.Title, len(s.X), len(s.Y))
		}
	}
	return nil
}

// SVG writes the chart as an SVG image of 720 by 440 points. Equal charts give equal
// bytes.
func (c *Chart) SVG(w io.Writer) error {
	p, err := c.plot()
	if err != nil {
		return err
	}
	canvas := vgsvg.New(vg.Points(720), vg.Points(440))
	p.Draw(draw.New(canvas))
	_, err = canvas.WriteTo(w)
	return err
}

func (c *Chart) plot() (*plot.Plot, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.Title, c.X, c.Y
	p.Title.Padding, p.Legend.Padding = vg.Points(8), vg.Points(3)
	p.Add(plotter.NewGrid())
	p.Legend.Top, p.Legend.Left = false, false
	p.Legend.XOffs, p.Legend.YOffs = vg.Points(-8), vg.Points(8)
	for i, s := range c.Series {
		pts := make(plotter.XYs, len(s.X))
		for k := range s.X {
			pts[k].X, pts[k].Y = s.X[k], s.Y[k]
		}
		line, dots, err := plotter.NewLinePoints(pts)
		if err != nil {
			return nil, fmt.Errorf("evict: line %s of %q: %w", s.Name, c.Title, err)
		}
		line.Color, dots.Color = colours[i%len(colours)], colours[i%len(colours)]
		line.Width = vg.Points(1.5)
		if i >= len(colours)/2 {
			line.Dashes = []vg.Length{vg.Points(5), vg.Points(3)}
		}
		dots.Shape, dots.Radius = draw.CircleGlyph{}, vg.Points(2)
		p.Add(line, dots)
		p.Legend.Add(s.Name, line, dots)
	}
	return p, nil
}

// Size of the text form's field, in characters.
const textRows, textColumns = 20, 64

// Text writes the chart with letters for its lines, for a terminal. Where lines meet,
// the first one's letter stands.
func (c *Chart) Text(w io.Writer) error {
	if err := c.check(); err != nil {
		return err
	}
	x0, x1, y0, y1 := c.ranges()
	field := make([][]byte, textRows)
	for i := range field {
		field[i] = []byte(strings.Repeat(" ", textColumns))
	}
	for i := len(c.Series) - 1; i >= 0; i-- {
		s := c.Series[i]
		for k := range s.X {
			col := place(s.X[k], x0, x1, textColumns)
			if k > 0 { // points between the places, so that a line can be followed
				from := place(s.X[k-1], x0, x1, textColumns)
				for m := from + 2; m < col-1; m += 2 {
					y := s.Y[k-1] + (s.Y[k]-s.Y[k-1])*float64(m-from)/float64(col-from)
					field[textRows-1-place(y, y0, y1, textRows)][m] = '.'
				}
			}
		}
	}
	for i := len(c.Series) - 1; i >= 0; i-- {
		s := c.Series[i]
		for k := range s.X {
			field[textRows-1-place(s.Y[k], y0, y1, textRows)][place(s.X[k], x0, x1, textColumns)] = letter(i)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", c.Title)
	for i, row := range field {
		y := y1 - (y1-y0)*float64(i)/float64(textRows-1)
		fmt.Fprintf(&b, "%8.3f |%s\n", y, strings.TrimRight(string(row), " "))
	}
	fmt.Fprintf(&b, "%8s +%s\n%9s%-*.4g%.4g  %s\n", "", strings.Repeat("-", textColumns), "", textColumns-3, x0, x1, c.X)
	names := make([]string, len(c.Series))
	for i, s := range c.Series {
		names[i] = fmt.Sprintf("%c %s", letter(i), s.Name)
	}
	fmt.Fprintf(&b, "%9s%s\n", "", strings.Join(names, "   "))
	_, err := io.WriteString(w, b.String())
	return err
}

func letter(i int) byte { return 'A' + byte(i%26) }

// ranges are the smallest and largest values of both axes, never equal.
func (c *Chart) ranges() (x0, x1, y0, y1 float64) {
	var xs, ys []float64
	for _, s := range c.Series {
		xs, ys = append(xs, s.X...), append(ys, s.Y...)
	}
	x0, x1, y0, y1 = slices.Min(xs), slices.Max(xs), slices.Min(ys), slices.Max(ys)
	if x1 == x0 {
		x1++
	}
	if y1 == y0 {
		y1++
	}
	return x0, x1, y0, y1
}

// place is v's place among n between from and to.
func place(v, from, to float64, n int) int {
	return min(max(int((v-from)/(to-from)*float64(n-1)+0.5), 0), n-1)
}
