package scenarios

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sort"
)

// Settings is what a search found: the file settings.json.
type Settings struct {
	Schema  string            `json:"schema"`
	Date    string            `json:"date"`
	Commit  string            `json:"commit"` // of weir, whose simulation found it
	Seeds   []uint64          `json:"seeds"`
	Reduced bool              `json:"reduced"`
	Swept   []string          `json:"swept"`    // what was varied
	LeftOut []string          `json:"left_out"` // what a reduced search does not look at
	Hash    string            `json:"hash"`     // of all files
	Files   map[string]string `json:"files"`    // SHA-256 of each
	Found   []Found           `json:"found"`
}

// SettingsSchema is the name of the file format.
const SettingsSchema = "weir.settings.v1"

// Found is the best setting of one baseline at one point, with what it reached there.
type Found struct {
	Scenario  string  `json:"scenario"`
	Model     string  `json:"model"`
	Point     Point   `json:"point"`
	Arm       Arm     `json:"arm"`
	MakespanS float64 `json:"makespan_s"`
	TurnsPerS float64 `json:"turns_per_s"`
	TokPerS   float64 `json:"out_tok_per_s"`
	// Share is its turns per second here over its most on the grid.
	Share float64 `json:"share_of_max,omitempty"`
	Tried []Tried `json:"tried,omitempty"`
}

// Tried is one setting that was run for a Found: its score is turns per second, or
// minus the makespan in seconds; Long means that the work did not end.
type Tried struct {
	Prefill int     `json:"prefill,omitempty"`
	Loops   Loops   `json:"loops,omitempty"`
	Restart float64 `json:"restart_s,omitempty"`
	// WeirRouter: with weir's router, see Arm. It is no candidate.
	WeirRouter bool `json:"weir_router,omitempty"`
	MixSteps   int  `json:"mix_steps,omitempty"` // see Arm
	// Concurrency is set where weir's peak is looked for; the score is goodput then.
	Concurrency int     `json:"concurrency,omitempty"`
	Score       float64 `json:"score"`
	Long        bool    `json:"too_long,omitempty"`
}

// ErrSettings: the settings are missing, or were found for other scenario files.
var ErrSettings = errors.New("scenarios: no settings; `make search` finds them")

// ReadSettings reads a settings file and checks that it belongs to the set.
func ReadSettings(file string, set *Set) (*Settings, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSettings, err)
	}
	s := &Settings{}
	if err := json.Unmarshal(b, s); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrSettings, file, err)
	}
	if s.Schema != SettingsSchema || s.Hash != set.Hash() {
		return nil, fmt.Errorf("%w: %s is of schema %q for files with hash %.12s, the files here have %.12s", ErrSettings, file, s.Schema, s.Hash, set.Hash())
	}
	return s, nil
}

// Write writes the file, in a fixed order.
func (s *Settings) Write(file string) error {
	order := map[string]int{}
	for i, n := range All() {
		order[n] = i
	}
	sort.SliceStable(s.Found, func(i, j int) bool {
		a, b := s.Found[i], s.Found[j]
		switch {
		case a.Scenario != b.Scenario:
			return order[a.Scenario] < order[b.Scenario]
		case a.Model != b.Model:
			return a.Model < b.Model
		case a.Point != b.Point:
			if a.Point.Load != b.Point.Load {
				return a.Point.Load < b.Point.Load
			}
			return a.Point.PeriodS+float64(a.Point.Concurrency) < b.Point.PeriodS+float64(b.Point.Concurrency)
		}
		return a.Arm.Kind < b.Arm.Kind
	})
	b, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		return err
	}
	tmp := file + ".new"
	if err := os.WriteFile(tmp, append(b, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, file)
}

// Find is the setting of a baseline at a point.
func (s *Settings) Find(scenario, model string, p Point, k Kind) (Found, error) {
	for _, f := range s.Found {
		if f.Scenario == scenario && f.Model == model && f.Point == p && f.Arm.Kind == k {
			return f, nil
		}
	}
	return Found{}, fmt.Errorf("%w: none for %s in %s with %s at %s", ErrSettings, k, scenario, model, p)
}

// shares fills in Found.Share.
func (s *Settings) shares() {
	type key struct {
		scenario, model string
		kind            Kind
	}
	most := map[key]float64{}
	for _, f := range s.Found {
		k := key{f.Scenario, f.Model, f.Arm.Kind}
		most[k] = max(most[k], f.TurnsPerS)
	}
	for i := range s.Found {
		f := &s.Found[i]
		if m := most[key{f.Scenario, f.Model, f.Arm.Kind}]; m > 0 {
			f.Share = f.TurnsPerS / m
		}
	}
}
