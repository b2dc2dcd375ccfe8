package serve

import (
	"regexp"
	"runtime/debug"
	"strings"
)

// version is set by the linker for releases and by `make build`.
var version = ""

// base is the version that builds without a tag go by.
const base = "0.1.0"

// Version is the version of this build, set by the linker or of the module. It has
// the form that NATS services must have: SemVer without a leading v.
func Version() string {
	if version != "" {
		return semantic(version)
	}
	if b, ok := debug.ReadBuildInfo(); ok && b.Main.Version != "" && b.Main.Version != "(devel)" {
		return semantic(b.Main.Version)
	}
	return base
}

var (
	semver   = regexp.MustCompile(`^(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$`)
	noBuild  = regexp.MustCompile(`[^0-9A-Za-z-]+`)
	leadZero = regexp.MustCompile(`^0\d+$`)
)

// semantic turns what `git describe` says into a version: v1.2.3-4-gabc becomes
// 1.2.3-4-gabc, and a commit without a tag becomes the build part of the base.
func semantic(v string) string {
	s := strings.TrimPrefix(v, "v")
	if semver.MatchString(s) && !badNumber(s) {
		return s
	}
	if s = strings.Trim(noBuild.ReplaceAllString(v, "-"), "-"); s == "" {
		return base
	}
	return base + "+" + s
}

// badNumber reports a number with leading zeros in the pre-release part, which
// SemVer forbids.
func badNumber(s string) bool {
	s, _, _ = strings.Cut(s, "+")
	_, pre, _ := strings.Cut(s, "-")
	for _, p := range strings.Split(pre, ".") {
		if leadZero.MatchString(p) {
			return true
		}
	}
	return false
}

// SetVersion is called by main before anything runs, with the version that the
// linker put there.
func SetVersion(v string) { version = v }
