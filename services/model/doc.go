// Package model finds a model, its vocabulary and the engine that runs it.
//
// Read model.go (what a model is and the default one), then engine.go (which
// engine runs it).
package model
