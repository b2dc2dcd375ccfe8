package scenarios

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/weir-dev/weir/schemas/calib"
	"github.com/weir-dev/weir/services/sim"
)

// ErrAbsent: the scenario files do not lie beside the checkout.
var ErrAbsent = errors.New("scenarios: the folder shared/scenarios was not found beside the checkout")

// Names of the scenarios whose bars this package computes.
const (
	Shift       = "shift-math-to-computer-use"
	Stationary  = "stationary-mix"
	Oscillation = "oscillation"
	Overload    = "overload"
	Coding      = "coding-plus-computer-use"
)

// All lists the scenarios in the order in which they are reported.
func All() []string { return []string{Shift, Stationary, Oscillation, Overload, Coding} }

// Set is the scenario files and calibrations of one folder "shared".
type Set struct {
	Dir       string
	Scenarios map[string]*sim.Scenario
	Bars      map[string]map[string]Bar
	cals      map[string]*calib.Calibration // by name and derate
	Hashes    map[string]string             // SHA-256 of each scenario file, and of workloads and calibrations
}

// Bar is one bar of a scenario file.
type Bar struct {
	Bar    float64  `json:"bar"`
	Goal   *float64 `json:"goal"`
	AtLoad float64  `json:"at_load"`
}

// Find loads the set that lies in a folder "shared" beside dir or above it.
func Find(dir string) (*Set, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "shared", "scenarios")); err == nil {
			return load(filepath.Join(dir, "shared"))
		}
		if dir == filepath.Dir(dir) {
			return nil, ErrAbsent
		}
		dir = filepath.Dir(dir)
	}
}

func load(dir string) (*Set, error) {
	s := &Set{Dir: dir, Scenarios: map[string]*sim.Scenario{}, Bars: map[string]map[string]Bar{}, cals: map[string]*calib.Calibration{}, Hashes: map[string]string{}}
	files := []string{"scenarios/workloads.json"}
	for _, name := range All() {
		file := filepath.Join(dir, "scenarios", name+".json")
		sc, err := sim.LoadScenario(file)
		if err != nil {
			return nil, err
		}
		if s.Bars[name], err = bars(sc.Bars); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		s.Scenarios[name] = sc
		files = append(files, "scenarios/"+name+".json")
		for _, model := range sc.Cluster.Calibrations {
			for _, derate := range []float64{1, 0.75} {
				if s.cals[calKey(model, derate)], err = sim.LoadCalibration(filepath.Join(dir, "calib"), model, derate); err != nil {
					return nil, err
				}
			}
			files = append(files, "calib/"+model+".json")
		}
	}
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(f)))
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(b)
		s.Hashes[f] = hex.EncodeToString(sum[:])
	}
	return s, nil
}

// bars reads the bars of a scenario file; "rule" beside them is text.
func bars(raw json.RawMessage) (map[string]Bar, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, fmt.Errorf("bars: %w", err)
	}
	out := map[string]Bar{}
	for name, b := range all {
		if strings.HasPrefix(strings.TrimSpace(string(b)), `"`) {
			continue
		}
		var v Bar
		if err := json.Unmarshal(b, &v); err != nil {
			return nil, fmt.Errorf("bars.%s: %w", name, err)
		}
		out[name] = v
	}
	return out, nil
}

func calKey(model string, derate float64) string { return fmt.Sprintf("%s@%g", model, derate) }

// Hash names the content of all files of the set.
func (s *Set) Hash() string {
	names := make([]string, 0, len(s.Hashes))
	for n := range s.Hashes {
		names = append(names, n)
	}
	sort.Strings(names)
	h := sha256.New()
	for _, n := range names {
		fmt.Fprintf(h, "%s %s\n", n, s.Hashes[n])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Models are the calibrations of a scenario.
func (s *Set) Models(scenario string) []string { return s.Scenarios[scenario].Cluster.Calibrations }

// Points are the load points of a scenario: loads, periods, or the one that there is.
// Those of overload follow from a search.
func (s *Set) Points(scenario string) []Point {
	sc := s.Scenarios[scenario]
	var out []Point
	for _, l := range sc.LoadGrid {
		out = append(out, Point{Load: l})
	}
	for _, p := range sc.PeriodGridS {
		out = append(out, Point{Load: 1, PeriodS: p})
	}
	if len(out) == 0 {
		out = []Point{{Load: 1}}
	}
	return out
}
