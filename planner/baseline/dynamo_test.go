package baseline

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/schemas/calib"
)

func TestStaticKeepsItsSplit(t *testing.T) {
	for name, tt := range map[string]struct {
		cfg  Config
		have []schemas.Role
		want string
	}{
		"cold start": {Config{Cell: "c0", Prefill: 2}, []schemas.Role{schemas.RoleStandby, schemas.RoleStandby, schemas.RoleStandby, schemas.RoleStandby}, "2:2"},
		"others set": {Config{Cell: "c0", Prefill: 2}, roles(3, 1), "3:1"},
		"one is new": {Config{Cell: "c0", Prefill: 2}, append(roles(1, 1), schemas.RoleStandby), "2:1"},
		"all mixed":  {Config{Cell: "c0", Mixed: true}, []schemas.Role{schemas.RoleStandby, schemas.RoleStandby}, "0:0"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCell(t, NewStatic(tt.cfg), tt.have...)
			c.load.WaitTokens, c.report = 1e9, full(1.5)
			c.run(120)
			if got := c.split(); got != tt.want {
				t.Errorf("split is %s, want %s", got, tt.want)
			}
			for _, e := range c.execs {
				if e.roles > 1 || tt.cfg.Mixed && e.role != schemas.RoleMixed {
					t.Errorf("%s got %d assignments and has role %s", e.id, e.roles, e.role)
				}
			}
		})
	}
}

func TestLoadLoop(t *testing.T) {
	const queueAll = 100_000 * 9 // a context waits for each worker
	tests := map[string]struct {
		cfg     Config
		p, d    int
		wait    int
		kv      float64
		seconds int
		want    string
	}{
		"nothing is pressed, nothing idles":          {Config{}, 4, 5, 100_000, 0.8, 60, "4:5"},
		"prefill asks alone and gets nothing":        {Config{}, 4, 5, queueAll, 0.8, 60, "4:5"},
		"decode asks alone and takes from prefill":   {Config{}, 4, 5, 200_000, 1.2, 6, "3:6"},
		"both ask, both stay":                        {Config{}, 4, 5, queueAll, 1.2, 60, "4:5"},
		"prefill asks while decode idles":            {Config{}, 4, 5, queueAll, 0.2, 6, "5:4"},
		"decode idles alone: the floor lets one go":  {Config{}, 4, 5, 200_000, 0.2, 6, "4:4+1"},
		"then the floor fills up in proportion":      {Config{}, 4, 5, 200_000, 0.2, 11, "6:3"},
		"without a floor more go":                    {Config{FloorOff: true}, 4, 5, 200_000, 0.2, 60, "4:1+4"},
		"latency wants decode at 0.4 of the memory":  {Config{Target: TargetLatency}, 4, 5, 10_000, 0.45, 6, "3:6"},
		"thresholds of the user":                     {Config{Target: TargetLoad, QueueUp: 1e9, QueueDown: 0, KVUp: 0.3, KVDown: 0.1}, 4, 5, 10_000, 0.45, 6, "3:6"},
		"one decode worker stays, whatever it says":  {Config{}, 8, 1, queueAll, 0.1, 60, "8:1"},
		"one prefill worker stays, whatever is full": {Config{}, 1, 8, 200_000, 1.4, 60, "1:8"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tt.cfg.Cell, tt.cfg.Samples = "c0", 1
			c := newCell(t, NewDynamo(tt.cfg), roles(tt.p, tt.d)...)
			c.load.WaitTokens, c.report = tt.wait, full(tt.kv)
			c.run(tt.seconds)
			if got := c.split(); got != tt.want {
				t.Errorf("split is %s, want %s; last plan %+v", got, tt.want, c.plans[len(c.plans)-1])
			}
		})
	}
}

// While a worker starts, for minutes, nothing else is decided.
func TestBlindDuringAStart(t *testing.T) {
	c := newCell(t, NewDynamo(Config{Cell: "c0"}), roles(4, 5)...)
	c.start, c.load.WaitTokens, c.report = 240, 200_000, full(1.2)
	c.run(30 + 200)
	if got := c.split(); got != "3:6" {
		t.Errorf("split is %s within the first start, want 3:6", got)
	}
	c.run(40)
	if got := c.split(); got != "2:7" {
		t.Errorf("split is %s after it, want 2:7", got)
	}
	blind := 0
	for _, p := range c.plans {
		if p.Rule == "not_ready" {
			blind++
		}
	}
	if blind == 0 {
		t.Error("no plan says that it waits for a start")
	}
}

func TestNoDecisionWithoutReports(t *testing.T) {
	c := newCell(t, NewDynamo(Config{Cell: "c0"}), roles(4, 5)...)
	c.load.WaitTokens, c.report = 200_000, full(1.2)
	c.run(4) // fewer than five reports
	c.silent = true
	c.run(60)
	if got := c.split(); got != "4:5" {
		t.Errorf("split is %s, want 4:5: the executors are silent", got)
	}
}

func TestModes(t *testing.T) {
	for mode, want := range map[schemas.Mode]int{schemas.ModePaused: 0, schemas.ModeAdvise: 1} {
		c := newCell(t, NewDynamo(Config{Cell: "c0"}), roles(4, 5)...)
		c.step(&schemas.Msg{Kind: schemas.KindMode, Mode: &schemas.PlannerMode{Mode: mode}})
		c.load.WaitTokens, c.report = 200_000, full(1.2)
		c.run(20)
		if got := c.split(); got != "4:5" {
			t.Errorf("%s: split is %s, want 4:5", mode, got)
		}
		if (len(c.plans) > 0) != (want > 0) {
			t.Errorf("%s: %d plans", mode, len(c.plans))
		}
	}
}

// Somebody else's assignment wins, and is read.
func TestConflict(t *testing.T) {
	c := newCell(t, NewDynamo(Config{Cell: "c0"}), roles(4, 5)...)
	c.load.WaitTokens, c.report = 200_000, full(1.2)
	e := c.execs[3]
	c.seq++
	e.last = c.seq // written by hand, not read yet
	c.run(12)
	if e.role != schemas.RolePrefill {
		t.Fatalf("an assignment with an old sequence came into force")
	}
	c.step(&schemas.Msg{Kind: schemas.KindAssignment, Subject: schemas.RoleSubject("c0", e.id), Seq: e.last, Assignment: &schemas.Assignment{Role: schemas.RolePrefill, Pinned: true}})
	e.epoch = e.last
	c.run(12)
	if e.role != schemas.RolePrefill || c.split() == "4:5" {
		t.Errorf("split is %s and the pinned executor has role %s", c.split(), e.role)
	}
}

func TestSLA(t *testing.T) {
	glm := calibration(t)
	drive := func(cfg Config, turns, uncached, prompt, output int) *cell {
		cfg.Cell, cfg.Target, cfg.Cal = "c0", TargetSLA, glm
		c := newCell(t, NewDynamo(cfg), roles(4, 5)...)
		c.report = full(0.3)
		for range 200 {
			c.load.Turns += uint64(turns)
			c.load.Ended += uint64(turns)
			c.load.Prompt += uint64(turns * prompt)
			c.load.Uncached += uint64(turns * uncached)
			c.load.Output += uint64(turns * output)
			c.run(1)
		}
		return c
	}
	// Long answers to short prompts: decode workers.
	if c := drive(Config{}, 14, 600, 600, 11_000); c.split() != "1:8" {
		t.Errorf("math: split is %s, want 1:8", c.split())
	}
	// Short answers to what tools returned: prefill workers.
	if c := drive(Config{}, 120, 2_800, 60_000, 200); c.split() < "5:4" {
		t.Errorf("computer use: split is %s, want 5:4 or more", c.split())
	}
	// Without turns there is no forecast, and no decision.
	if c := drive(Config{}, 0, 0, 0, 0); c.split() != "4:5" {
		t.Errorf("idle: split is %s, want 4:5", c.split())
	}
	// With the load loop the forecast is only a lower bound.
	c := drive(Config{LoadLoop: true}, 14, 600, 600, 11_000)
	if p := c.actor.(*Dynamo).st.Pools["m"]; p.LowerP != 1 || p.LowerD < 8 {
		t.Errorf("load loop: lower bounds are %d:%d, want 1 and at least 8", p.LowerP, p.LowerD)
	}
}

// The largest batch that meets the target, and no larger one.
func TestBatch(t *testing.T) {
	d := NewDynamo(Config{Cell: "c0", Target: TargetSLA, Cal: calibration(t), ITLSeconds: 0.0105})
	w := &worker{Slots: 256, KVTokens: 8_200_000}
	b, itl := d.batch(d.perf(), w, 20_000)
	if itl > 0.0105 || b < 2 {
		t.Errorf("batch %d with %.4f s between tokens", b, itl)
	}
	if next := d.perf().Decode(b+1, float64(b+1)*20_000); b < 256 && next <= 0.0105 {
		t.Errorf("batch %d would meet the target too", b+1)
	}
	if b, _ := d.batch(d.perf(), w, 1e9); b != 1 {
		t.Errorf("a context larger than the memory gives a batch of %d, want 1", b)
	}
}

// A planner that continues from its snapshot says what the first one says.
func TestSnapshot(t *testing.T) {
	make := func() *Dynamo {
		return NewDynamo(Config{Cell: "c0", Target: TargetSLA, LoadLoop: true, Predictor: PredictKalman})
	}
	c := newCell(t, make(), roles(4, 5)...)
	c.load = schemas.PoolLoad{Pool: "m", Turns: 10, Prompt: 1000, Uncached: 500, Ended: 10, Output: 100}
	c.report = full(0.7)
	c.run(200)
	b, err := c.actor.Snapshot(nil)
	if err != nil {
		t.Fatal(err)
	}
	other := make()
	if err := other.Restore(b); err != nil {
		t.Fatal(err)
	}
	again, err := other.Snapshot(nil)
	if err != nil || !bytes.Equal(b, again) {
		t.Fatalf("restored, the state differs (%v):\n%s\n%s", err, b, again)
	}
	if err := make().Restore([]byte(`{"Pools":{"m":{}}}`)); err == nil {
		t.Error("half a snapshot was accepted")
	}
	s := NewStatic(Config{Cell: "c0"})
	if b, err = s.Snapshot(nil); err != nil || s.Restore(b) != nil || s.Restore([]byte("x")) == nil {
		t.Errorf("static: %v", err)
	}
}

func TestConfigCheck(t *testing.T) {
	for _, c := range []Config{{Target: "best"}, {Predictor: "oracle"}, {Target: TargetLoad}} {
		if c.Check() == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
	if err := (&Config{}).Check(); err != nil {
		t.Error(err)
	}
}

// calibration is one that looks like a worker of four accelerators.
func calibration(t *testing.T) *calib.Calibration {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "calibration.json"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := calib.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
