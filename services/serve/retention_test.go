package serve

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weir-dev/weir/streams"
)

func TestParseAge(t *testing.T) {
	f := func(s string, want time.Duration) {
		t.Helper()
		d, err := parseAge(s)
		if d != want || (err == nil) != (want > 0) {
			t.Errorf("%q is %s, %v; want %s", s, d, err, want)
		}
	}
	f("90m", 90*time.Minute)
	f("7d", 7*24*time.Hour)
	f("1.5d", 36*time.Hour)
	f("1m", time.Minute)
	f("", 0)
	f("d", 0)
	f("NaNd", 0)
	f("1e300d", 0)
	f("-1d", 0)
	f("59s", 0)
	f("9999999h", 0)
	f("week", 0)
}

func TestRetention(t *testing.T) {
	f := func(retain map[string]string, wants ...string) {
		t.Helper()
		o := Defaults()
		o.Retain = retain
		err := o.Validate()
		if len(wants) == 0 && err != nil {
			t.Errorf("%v: %v", retain, err)
		}
		for _, want := range wants {
			if !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v: %v lacks %q", retain, err, want)
			}
		}
	}
	f(nil)
	f(map[string]string{"AGENT": "1h"})
	f(map[string]string{"AGENT": "7d", "RESULT": "7d", "PAYLOAD": "7d", "dead": "30d", "OUT": "1m"})
	f(map[string]string{"OBJ_PAYLOAD": "30d"})
	f(map[string]string{"SESSION": "7d"})
	f(map[string]string{"AGENT": "36h"}, "RESULT=36h0m0s")
	f(map[string]string{"AGENT": "3d", "RESULT": "3d"}, "PAYLOAD is kept for 48h0m0s")
	f(map[string]string{"AGENT": "5m"}, "--deadline 10m0s")
	f(map[string]string{"READY": "1h"}, `"READY"`, "SESSION, AGENT, RESULT")
	f(map[string]string{"AGENT": "soon", "CUP": "1h"}, `"soon"`, `"CUP"`)

	o := Defaults()
	o.Retain = map[string]string{"PAYLOAD": "5d", "session": "2h"}
	if d := o.keepSessions(); d != 2*time.Hour {
		t.Errorf("sessions are kept for %s", d)
	}
	topo := o.Topology()
	if s, _ := streams.Find(topo, streams.PayloadStream); s.MaxAge != 120*time.Hour || !s.AgeFixed {
		t.Errorf("the bucket has %s, %v", s.MaxAge, s.AgeFixed)
	}
	if s, _ := streams.Find(topo, streams.Agent); s.AgeFixed {
		t.Error("AGENT's age was not chosen")
	}
}
