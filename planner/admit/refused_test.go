package admit

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weir-dev/weir/schemas"
)

// TestRefusals: the times in order are those of the sessions, whatever comes and goes.
func TestRefusals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := refusals{at: map[Key]schemas.Time{}}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			k := Key{"t", fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "session"))}
			at := schemas.Time(rapid.IntRange(0, 20).Draw(t, "at"))
			switch rapid.IntRange(0, 4).Draw(t, "what") {
			case 0:
				r.drop(k)
			case 1:
				r.since(at)
				for k, came := range r.at {
					if came < at {
						t.Fatalf("%v came at %d and is not forgotten at %d", k, came, at)
					}
				}
			default:
				r.add(k, at)
			}
			var want []schemas.Time
			before := 0
			for _, came := range r.at {
				want = append(want, came)
				if came < at {
					before++
				}
			}
			slices.Sort(want)
			if !slices.Equal(want, r.times) || r.before(at) != before {
				t.Fatalf("%v, want %v; %d before %d, want %d", r.times, want, r.before(at), at, before)
			}
		}
	})
}
