package chaos

import (
	"testing"

	"github.com/weir-dev/weir/schemas"
)

// TestPoison: a turn that ends its engine is given up after two executors, and
// no other turn suffers.
func TestPoison(t *testing.T) {
	good := 100
	if testing.Short() {
		good = 40
	}
	for _, engine := range engines() {
		t.Run(engine, func(t *testing.T) {
			r, err := Poison(t.Context(), engine, good)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range r.Problems {
				t.Error(p)
			}
			if r.Deaths < 1 || r.Deaths > 2 || r.DeadLetters != 1 || r.Good != good || r.OthersLost != 0 || r.Code != schemas.CodePoison {
				t.Errorf("%d deaths (1 or 2 allowed), %d dead letters (1), %d of %d good turns answered, %d lost, code %q",
					r.Deaths, r.DeadLetters, r.Good, good, r.OthersLost, r.Code)
			}
		})
	}
}
