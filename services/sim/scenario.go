package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"

	"github.com/weir-dev/weir/schemas/calib"
)

// Errors of this package.
var (
	// ErrScenario: a scenario, workload or system that cannot be simulated.
	ErrScenario = errors.New("sim: invalid scenario")
	// ErrTooLong: the work did not end within Options.MaxS.
	ErrTooLong = errors.New("sim: the work did not end in time")
	// ErrInvariant: the run broke an invariant of weir.
	ErrInvariant = errors.New("sim: an invariant is broken")
)

// Schema is the name of the file format.
const Schema = "weir.scenario.v1"

// Scenario is a scenario file with its workloads.
type Scenario struct {
	Schema  string  `json:"schema"`
	Name    string  `json:"name"`
	Cluster Cluster `json:"cluster"`
	Signals Signals `json:"signals"`
	Seeds   []uint64
	Phases  []Phase `json:"phases"`
	// DurationS and DiscardS are of the whole run where phases do not say them.
	DurationS   float64         `json:"duration_s"`
	DiscardS    float64         `json:"discard_s"`
	LoadGrid    []float64       `json:"load_grid"`
	PeriodGridS []float64       `json:"period_grid_s"`
	Bars        json.RawMessage `json:"bars"`

	Workloads map[string]*Workload `json:"-"`
}

// Cluster is what serves.
type Cluster struct {
	Workers      int      `json:"workers"`
	GPUs         int      `json:"gpus_per_worker"`
	Calibrations []string `json:"calibrations"`
	HostGB       float64  `json:"host_gb_per_worker"` // 1e9 bytes
	MaxSeqs      int      `json:"max_num_seqs_per_worker"`
	Links        struct {
		HostLocal  float64 `json:"host_local_gbps"` // 1e9 bytes per second and GPU
		HostShared float64 `json:"host_shared_gbps"`
		P2D        float64 `json:"p2d_gbps"`
		FairShare  bool    `json:"fair_share"`
	} `json:"links"`
}

// Signals is how late parts hear of each other.
type Signals struct {
	ReportAgeMS float64    `json:"report_age_ms"`
	BusDelayMS  [2]float64 `json:"bus_delay_ms"`
}

// Phase is one part of a scenario. A phase with Sessions is fixed work; phases with a
// mix keep slots per class.
type Phase struct {
	Workload    string           `json:"workload"`
	Concurrency int              `json:"concurrency"`
	Sessions    int              `json:"sessions"`
	Mix         map[string]Slots `json:"mix"`
	Drift       string           `json:"drift"` // "linear over the run" or empty
	DurationS   float64          `json:"duration_s"`
	DiscardS    float64          `json:"discard_s"`
	// Factors are concurrencies relative to a peak that a search has found; a run is
	// told one by Options.Concurrency and Options.Load.
	Factors []float64 `json:"concurrency_factor_of_peak"`
}

// Slots is how many sessions of a class run at once, from the begin to the end of a
// phase: a number, or two where it drifts.
type Slots [2]float64

// UnmarshalJSON reads 5 or [5, 9].
func (s *Slots) UnmarshalJSON(b []byte) error {
	var one float64
	if err := json.Unmarshal(b, &one); err == nil {
		*s = Slots{one, one}
		return nil
	}
	var two []float64
	if err := json.Unmarshal(b, &two); err != nil || len(two) != 2 {
		return fmt.Errorf("%w: slots are a number or two of them, not %s", ErrScenario, b)
	}
	*s = Slots{two[0], two[1]}
	return nil
}

// MarshalJSON writes what UnmarshalJSON reads.
func (s Slots) MarshalJSON() ([]byte, error) {
	if s[0] == s[1] {
		return json.Marshal(s[0])
	}
	return json.Marshal([]float64{s[0], s[1]})
}

// LoadScenario reads a scenario file, and workloads.json beside it.
func LoadScenario(file string) (*Scenario, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrScenario, err)
	}
	w, err := os.ReadFile(filepath.Join(filepath.Dir(file), "workloads.json"))
	if err != nil {
		return nil, fmt.Errorf("%w: the workloads stand beside a scenario: %w", ErrScenario, err)
	}
	sc, err := Parse(b, w)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return sc, nil
}

// Parse reads a scenario and its workloads.
func Parse(scenario, workloads []byte) (*Scenario, error) {
	sc := &Scenario{}
	if err := json.Unmarshal(scenario, sc); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrScenario, err)
	}
	var err error
	if sc.Workloads, err = parseWorkloads(workloads); err != nil {
		return nil, err
	}
	return sc, sc.check()
}

func (sc *Scenario) check() error {
	c := &sc.Cluster
	switch {
	case sc.Schema != Schema:
		return fmt.Errorf("%w: schema is %q, want %q", ErrScenario, sc.Schema, Schema)
	case c.Workers < 1 || c.Workers > 256:
		return fmt.Errorf("%w: cluster.workers is %d; one cell has 1 to 256", ErrScenario, c.Workers)
	case c.MaxSeqs < 1 || c.HostGB < 0:
		return fmt.Errorf("%w: cluster.max_num_seqs_per_worker is %d, host_gb_per_worker %g", ErrScenario, c.MaxSeqs, c.HostGB)
	case len(sc.Phases) == 0:
		return fmt.Errorf("%w: no phases", ErrScenario)
	case sc.Signals.BusDelayMS[1] < sc.Signals.BusDelayMS[0] || sc.Signals.BusDelayMS[0] < 0:
		return fmt.Errorf("%w: signals.bus_delay_ms is %v", ErrScenario, sc.Signals.BusDelayMS)
	}
	for i := range sc.Phases {
		p := &sc.Phases[i]
		names := sortedKeys(p.Mix)
		if p.Workload != "" {
			names = append(names, p.Workload)
		}
		for _, n := range names {
			if sc.Workloads[n] == nil {
				return fmt.Errorf("%w: phases[%d] names workload %q, which workloads.json does not have", ErrScenario, i, n)
			}
		}
		if (p.Workload == "") == (len(p.Mix) == 0) || p.Sessions < 0 || p.Concurrency < 0 {
			return fmt.Errorf("%w: phases[%d] has one workload or a mix", ErrScenario, i)
		}
	}
	return nil
}

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}

// LoadCalibration reads calibration <dir>/<name>.json with that derate.
func LoadCalibration(dir, name string, derate float64) (*calib.Calibration, error) {
	b, err := os.ReadFile(filepath.Join(dir, name+".json"))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrScenario, err)
	}
	c, err := calib.Parse(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if derate > 0 {
		c.Derate = derate
	}
	return c, nil
}
