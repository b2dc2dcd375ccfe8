// Package proc ties weir's processes together: a child ends when its parent does,
// and a parent knows how a child ended.
package proc

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
)

// EnvParent names the descriptor of the pipe whose other end the parent holds.
const EnvParent = "WEIR_PARENT_FD"

// ErrParent is the cause of a context that ended because the parent is gone.
var ErrParent = errors.New("the parent process has ended")

// Context ends on SIGINT and SIGTERM, and when the parent's end of the inherited
// pipe closes, however the parent ended.
func Context() (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	fd, err := strconv.Atoi(os.Getenv(EnvParent))
	if err != nil || fd < 3 {
		return ctx, stop
	}
	ctx2, cancel := context.WithCancelCause(ctx)
	go func() {
		var b [1]byte
		pipe := os.NewFile(uintptr(fd), "parent")
		_, _ = pipe.Read(b[:]) // nothing is ever written: it returns when the parent is gone
		cancel(ErrParent)
	}()
	return ctx2, func() { cancel(nil); stop() }
}

// EnvBoot names one life of a process. A supervisor sets it, so that it can say
// later which life has ended.
const EnvBoot = "WEIR_BOOT"

// NewBoot draws a name for one life of a process.
func NewBoot() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // crypto/rand never fails
	return hex.EncodeToString(b[:])
}

// Outside reports whether a process was ended by a signal that does not come
// from its own code: somebody killed it. SIGABRT, SIGSEGV and their like are its
// own doing, as is an exit code.
func Outside(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	st, ok := exit.Sys().(syscall.WaitStatus)
	if !ok || !st.Signaled() {
		return false
	}
	switch st.Signal() {
	case syscall.SIGKILL, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT:
		return true
	}
	return false
}

// Cause says in words how a process ended.
func Cause(err error) string {
	if err == nil {
		return "exit status 0"
	}
	return err.Error()
}
