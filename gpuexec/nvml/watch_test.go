package nvml

import (
	"strings"
	"testing"
	"time"

	"github.com/weir-dev/weir/schemas"
)

// TestJudge: what makes an executor unfit, and when it is fit again.
func TestJudge(t *testing.T) {
	type reading struct {
		after time.Duration // since the reading before
		gpu   schemas.GPU
		gone  bool
		want  string // part of unfit; "" means fit
	}
	g := func(xid, ecc uint64) schemas.GPU { return schemas.GPU{UUID: "GPU-a", XID: xid, ECC: ecc} }
	for name, rs := range map[string][]reading{
		"healthy":                  {{gpu: g(0, 7)}, {gpu: g(0, 7)}},
		"old ECC errors count not": {{gpu: g(0, 7)}, {gpu: g(0, 8), want: "1 new uncorrected"}, {after: 29 * time.Second, gpu: g(0, 8), want: "1 new"}, {after: time.Second, gpu: g(0, 8)}},
		"fallen off the bus":       {{gpu: g(79, 0), want: "XID 79: GPU has fallen off the bus; reset the device"}, {after: time.Hour, gpu: g(0, 0), want: "XID 79"}},
		"a process died":           {{gpu: g(31, 0), want: "memory page fault"}, {after: 10 * time.Second, gpu: g(31, 0), want: "page fault"}, {after: 29 * time.Second, gpu: g(0, 0), want: "page fault"}, {after: time.Second, gpu: g(0, 0)}},
		"unknown error":            {{gpu: g(999, 0), want: "XID 999"}, {after: 31 * time.Second, gpu: g(0, 0)}},
		"fatal stays":              {{gpu: g(48, 0), want: "XID 48"}, {gpu: g(13, 3), want: "XID 48"}, {after: time.Hour, gpu: g(0, 3), want: "XID 48"}},
		"lost and back":            {{gpu: g(0, 0)}, {gone: true, want: "does not list it"}, {after: time.Hour, gone: true, want: "does not list it"}, {gpu: g(0, 0), want: "was away"}, {after: 30 * time.Second, gpu: g(0, 0)}},
		"hot and full is fit":      {{gpu: schemas.GPU{UUID: "GPU-a", TempC: 95, Slowed: []string{"thermal"}, MemUsed: 1, MemTotal: 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			var w Watch
			at := time.Unix(0, 0)
			for i, r := range rs {
				at = at.Add(r.after)
				in := []schemas.GPU{{UUID: "GPU-b"}}
				if !r.gone {
					in = append(in, r.gpu)
				}
				out, unfit := w.Judge(at, in)
				if r.want == "" && unfit != "" || !strings.Contains(unfit, r.want) || r.want != "" && !strings.HasPrefix(unfit, "GPU-a: ") {
					t.Errorf("reading %d: %q, want %q", i, unfit, r.want)
				}
				if len(out) != len(in) {
					t.Errorf("reading %d: %d devices of %d", i, len(out), len(in))
				}
			}
		})
	}
}

// TestLastXID: a device's last error stays in its reports.
func TestLastXID(t *testing.T) {
	var w Watch
	in := []schemas.GPU{{UUID: "GPU-a", XID: 94}}
	w.Judge(time.Unix(0, 0), in)
	in[0].XID = 0
	if out, _ := w.Judge(time.Unix(100, 0), in); out[0].XID != 94 || in[0].XID != 0 {
		t.Errorf("%+v", out)
	}
}
