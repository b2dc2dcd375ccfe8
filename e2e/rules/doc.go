// Package rules holds the tests that keep the house in order: who may import
// whom, which packages are pure, how long a file may be, and that what the README
// says can be run exists.
//
// Read imports_test.go first, then purity_test.go, then readme_test.go. Each rule
// is a function over parsed source, and each has negative controls: a rule that
// finds nothing on bad input would pass forever.
package rules
