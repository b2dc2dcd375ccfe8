package main

import (
	"testing"

	"github.com/weir-dev/weir/e2e/show"
)

// TestFiguresAreNamedOnce: two parts must not print the same figure.
func TestFiguresAreNamedOnce(t *testing.T) {
	if twice := show.Twice(parts()); len(twice) > 0 {
		t.Errorf("printed twice: %v", twice)
	}
}
