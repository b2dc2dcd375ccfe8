// Package calib reads calibration files (calib/v1) and computes what they say: how
// long an accelerator worker takes for a prefill step, a decode step, a transfer.
// The planner values work with it and simulated devices take their time from it, so
// both have one meaning of a coefficient.
//
// All computation is pure and refuses loudly outside the range for which a
// calibration was fitted.
package calib

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// Schema is the name of the file format.
const Schema = "calib/v1"

// Errors of calibrations.
var (
	// ErrFile: the file is not a calibration, or contradicts itself.
	ErrFile = errors.New("calib: bad calibration file")
	// ErrRange: a value outside the range for which the calibration holds.
	ErrRange = errors.New("calib: outside the calibrated range")
)

// Calibration is one model on one kind of worker. Times are milliseconds of the
// unloaded, underated worker; sizes are tokens and bytes.
type Calibration struct {
	Schema string `json:"schema"`
	ID     string `json:"id"`
	HW     string `json:"hw"`
	Model  string `json:"model"`
	Layout Layout `json:"layout"`
	Spec   struct {
		K  int     `json:"k"`
		AL float64 `json:"al"` // accepted tokens per decode step; 0 means 1
	} `json:"spec"`
	Prefill Prefill `json:"prefill"`
	Decode  Decode  `json:"decode"`
	Mem     struct {
		Weights    int64 `json:"weights"`      // bytes per GPU
		KVBytesTok int64 `json:"kv_bytes_tok"` // bytes per token
		KVTokens   int64 `json:"kv_tokens"`    // tokens per worker
	} `json:"mem"`
	Links []Link `json:"links"`
	Flip  struct {
		P2DMS    float64 `json:"p2d_ms"`
		D2PMS    float64 `json:"d2p_ms"`
		RestartS float64 `json:"restart_s"` // seconds; of baselines that restart
	} `json:"flip"`
	// Derate: the time that is expected is the modelled time / Derate.
	Derate      float64 `json:"derate"`
	Extrapolate bool    `json:"extrapolate"`
	Range       struct {
		N      [2]float64 `json:"n"`
		Prefix [2]float64 `json:"prefix"`
		B      [2]float64 `json:"B"`
		K      [2]float64 `json:"K"`
	} `json:"range"`
	Tag string `json:"tag"`
}

// Layout is a worker's shape.
type Layout struct {
	GPUs   int `json:"gpus"`
	AttnDP int `json:"attn_dp"` // data-parallel attention ranks
	TP     int `json:"tp"`
	EP     int `json:"ep"`
}

// Prefill is the cost of a prefill step.
type Prefill struct {
	Form string `json:"form"`
	Coef struct {
		Floor float64 `json:"floor"` // ms
		A     float64 `json:"a"`     // ms per token of the fullest rank
		C     float64 `json:"c"`     // ms per token and context token
		M0    float64 `json:"m0"`    // ms
		M1    float64 `json:"m1"`    // ms per token of all ranks
	} `json:"coef"`
	// Grid rows are new tokens on every rank, prefix, ms.
	Grid [][3]float64 `json:"grid"`
}

// prefillForm is the one closed form that this version knows.
const prefillForm = "max(floor,a*n)+c*S+m0+m1*N"

// Decode is the cost of a decode step.
type Decode struct {
	GridB []float64 `json:"grid_B"` // requests per worker
	MS    []float64 `json:"ms"`     // at zero context
	KCtx  float64   `json:"k_ctx"`  // ms per context token of all requests
	MaxB  int       `json:"max_B"`
}

// Link is a way for KV.
type Link struct {
	Name  string  `json:"name"`
	GBps  float64 `json:"gbps"`   // 1e9 bytes per second, one direction, per GPU
	LatUS float64 `json:"lat_us"` // per transfer
}

// Parse reads a calibration file. The error wraps ErrFile and names the field.
func Parse(b []byte) (*Calibration, error) {
	c := &Calibration{}
	if err := json.NewDecoder(bytes.NewReader(b)).Decode(c); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFile, err)
	}
	if c.Spec.AL == 0 {
		c.Spec.AL = 1
	}
	if c.Derate == 0 {
		c.Derate = 1
	}
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrFile, c.ID, err)
	}
	return c, nil
}

func (c *Calibration) check() error {
	coef, d := c.Prefill.Coef, &c.Decode
	switch {
	case c.Schema != Schema:
		return fmt.Errorf("schema is %q, want %q", c.Schema, Schema)
	case c.Layout.GPUs < 1 || c.Layout.AttnDP < 1:
		return fmt.Errorf("layout has %d GPUs and %d attention ranks", c.Layout.GPUs, c.Layout.AttnDP)
	case c.Prefill.Form != prefillForm:
		return fmt.Errorf("prefill.form is %q, this version computes %q", c.Prefill.Form, prefillForm)
	case !positive(coef.Floor, coef.A, coef.C, coef.M0, coef.M1, d.KCtx, c.Spec.AL, c.Derate):
		return errors.New("a coefficient is negative or no number")
	case c.Spec.AL < 1 || c.Derate > 1.5 || c.Derate <= 0:
		return fmt.Errorf("spec.al is %g, derate %g", c.Spec.AL, c.Derate)
	case len(d.GridB) < 2 || len(d.GridB) != len(d.MS) || !slices.IsSorted(d.GridB) || !positive(d.MS...):
		return fmt.Errorf("decode.grid_B has %d rising values, decode.ms %d", len(d.GridB), len(d.MS))
	case c.Mem.KVTokens < 1 || c.Mem.KVBytesTok < 1:
		return fmt.Errorf("mem has room for %d tokens of %d bytes", c.Mem.KVTokens, c.Mem.KVBytesTok)
	}
	for i := 1; i < len(d.GridB); i++ {
		if d.GridB[i] == d.GridB[i-1] {
			return fmt.Errorf("decode.grid_B holds %g twice", d.GridB[i])
		}
	}
	for i, r := range c.Prefill.Grid {
		if !positive(r[:]...) || r[0] == 0 {
			return fmt.Errorf("prefill.grid[%d] is %v", i, r)
		}
	}
	return nil
}

func positive(xs ...float64) bool {
	for _, x := range xs {
		if x < 0 || math.IsNaN(x) || math.IsInf(x, 0) {
			return false
		}
	}
	return true
}

// Link returns a link by its name.
func (c *Calibration) Link(name string) (Link, bool) {
	i := slices.IndexFunc(c.Links, func(l Link) bool { return l.Name == name })
	if i < 0 {
		return Link{}, false
	}
	return c.Links[i], true
}

// Time is how long the link takes for that many bytes when nothing shares it.
func (l Link) Time(bytes int64) time.Duration {
	if l.GBps <= 0 {
		return math.MaxInt64
	}
	return milliseconds(l.LatUS/1e3 + float64(bytes)/l.GBps/1e6)
}

func milliseconds(ms float64) time.Duration { return time.Duration(math.Round(ms * 1e6)) }
