package serve

import "runtime/debug"

// version is set by the linker for releases.
var version = ""

// Version is the version of this build: set by the linker, or of the module.
func Version() string {
	if version != "" {
		return version
	}
	if b, ok := debug.ReadBuildInfo(); ok && b.Main.Version != "" && b.Main.Version != "(devel)" {
		return b.Main.Version
	}
	return "0.1.0"
}

// SetVersion is called by main before anything runs, with the version that the
// linker put there.
func SetVersion(v string) { version = v }
