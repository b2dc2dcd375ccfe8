package executor

import (
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/weir-dev/weir/gpuexec"
)

// EnvFaultAbort makes an engine abort its process, as a failed assertion in a
// library would: when a prefill step computes this token, given as a decimal
// id. It is for tests of what happens then, and never set otherwise.
const EnvFaultAbort = "WEIR_FAULT_ABORT_TOKEN"

// withFault wraps an engine when the variable is set.
func withFault(e gpuexec.StepEngine) gpuexec.StepEngine {
	id, err := strconv.ParseInt(strings.TrimSpace(os.Getenv(EnvFaultAbort)), 10, 32)
	if err != nil {
		return e
	}
	f := faulty{StepEngine: e, token: int32(id)}
	if c, ok := e.(gpuexec.Constrainer); ok {
		return constrainable{f, c}
	}
	return f
}

// faulty aborts the process at one token.
type faulty struct {
	gpuexec.StepEngine
	token int32
}

// Step aborts when a prefill row holds the token. Generated tokens do not count:
// a model may come up with it by itself.
func (f faulty) Step(phase gpuexec.Phase, rows []gpuexec.Row) error {
	for _, r := range rows {
		if phase == gpuexec.PhasePrefill && r.Token == f.token {
			_ = syscall.Kill(os.Getpid(), syscall.SIGABRT)
			select {} // the signal ends the process
		}
	}
	return f.StepEngine.Step(phase, rows)
}

// constrainable keeps what the wrapped engine can do besides.
type constrainable struct {
	faulty
	gpuexec.Constrainer
}
