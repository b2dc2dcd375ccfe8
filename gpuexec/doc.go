// Package gpuexec is the executor: the part of weir that owns one engine and
// obeys role assignments while it runs.
//
// Read engine.go first (what an engine must do), then executor.go (the state
// machine that turns jobs into engine operations), then role.go (how a role
// changes without a restart). The package is pure: time and results arrive as
// messages, effects leave as messages. The engines live in sub-packages.
package gpuexec
