package plan_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/weir-dev/weir/planner/plan"
	"github.com/weir-dev/weir/schemas"
)

func TestTune(t *testing.T) {
	if os.Getenv("TUNE") == "" {
		t.Skip("tuning")
	}
	pause := schemas.ModePaused
	periods := []float64{0, 30, 60, 120, 300, 900, 1800}
	if v, err := strconv.ParseFloat(os.Getenv("PERIOD"), 64); err == nil {
		periods = []float64{v}
	}
	for _, period := range periods {
		mk := func(prefill int, mode schemas.Mode, seed uint64) *fakeCell {
			m := func(s float64) int {
				if period == 0 {
					return 500
				}
				if int(s/(period/2))%2 == 0 {
					return 1000
				}
				return 100
			}
			u := func(s float64) int {
				if period == 0 {
					return 450
				}
				if int(s/(period/2))%2 == 0 {
					return 60
				}
				return 900
			}
			cfg := plan.Config{Model: glm(), Mode: mode}
			for _, kv := range strings.Fields(os.Getenv("CFG")) {
				k, v, _ := strings.Cut(kv, "=")
				x, _ := strconv.ParseFloat(v, 64)
				switch k {
				case "band":
					cfg.Rules.Band = x
				case "patience":
					cfg.Rules.Patience = x
				case "dwell":
					cfg.Rules.Dwell = x
				case "settle":
					cfg.Rules.Settle = x
				}
			}
			return newCell(seed, cfg, 9, prefill, math1000(m), computerUse(u))
		}
		type res struct {
			turns, tok float64
			flips      int
		}
		f := func(c *fakeCell) res {
			c.run(3600)
			return res{float64(c.finished["math"]+c.finished["computer-use"]) / 3600, c.tokens / 3600, c.flips}
		}
		line := fmt.Sprintf("period %4.0f:", period)
		for pf := 2; pf <= 7 && os.Getenv("STATIC") != ""; pf++ {
			r := f(mk(pf, pause, 1))
			line += fmt.Sprintf(" %dP %.1f/%.0f", pf, r.turns, r.tok)
		}
		c := mk(4, schemas.ModeAct, 1)
		r := f(c)
		line += fmt.Sprintf(" | weir %.1f/%.0f flips %d", r.turns, r.tok, r.flips)
		fmt.Println(line)
		if os.Getenv("TUNE") == "v" {
			for _, p := range c.plans {
				if len(p.Changes) > 0 {
					fmt.Printf("%6.0f %s %s in=%+v\n", float64(p.AtNS)/1e9-1, p.Rule, p.Reason, p.Inputs)
				}
			}
		}
	}
}
