package turncmd

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/weir-dev/weir/schemas"
)

// ExitError carries the exit code of a command: 1 failed, 2 wrong usage.
type ExitError struct {
	Code int
	Err  error
}

// Error is the text of the cause.
func (e *ExitError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *ExitError) Unwrap() error { return e.Err }

// ExitCode is what the process ends with.
func (e *ExitError) ExitCode() int { return e.Code }

func usage(format string, args ...any) error {
	return &ExitError{Code: 2, Err: fmt.Errorf(format, args...)}
}

// flags of the command, as they stand on the command line.
type flags struct {
	natsURL, creds, tenant         string
	session, branch, parent, turn  string
	model, output                  string
	file, tokens, force, body      string
	known                          string
	system, traceFile              string
	stop                           []string
	maxTokens, seed, topK          int64
	temperature, topP              float64
	deadline                       time.Duration
	frames, ignoreEOS, raw, detach bool
	priority                       int
}

// NewCommand makes "weir turn".
func NewCommand() *cobra.Command {
	f := &flags{}
	cmd := &cobra.Command{
		Use:   "turn [TEXT]",
		Short: "Publish one turn and print the answer as it comes",
		Long: `Publish one turn and print the answer as it comes.

TEXT is the user's message; "-" reads it from standard input. The text of the
answer goes to standard output, a summary to standard error. With -o json the
last line of standard output is one JSON object with the text, the tokens, their
counts, the executors and the times; with --frames each piece is a line before it.

Exit codes: 0 answered, 1 failed, 2 wrong usage. Ctrl-C cancels the turn.`,
		Example: `  weir turn "What is a weir?" --max-tokens 64
  weir turn "And in Dutch?" --session s-1 --known 0123456789abcdef0123456789abcdef -o json
  weir turn --tokens ids.json --temperature 0 --ignore-eos --max-tokens 16 -o json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usage("turn takes one TEXT, got %d words; put it in quotes", len(args))
			}
			return nil
		},
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			text, given := "", len(args) == 1
			if given {
				text = args[0]
			}
			return f.run(cmd, text, given)
		},
	}
	f.register(cmd)
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &ExitError{Code: 2, Err: err} })
	return cmd
}

func (f *flags) register(cmd *cobra.Command) {
	url := os.Getenv("WEIR_NATS")
	if url == "" {
		url = nats.DefaultURL
	}
	p := cmd.Flags()
	p.StringVar(&f.natsURL, "nats", url, "address of NATS; WEIR_NATS sets the default")
	p.StringVar(&f.creds, "creds", "", "NATS credentials file")
	p.StringVar(&f.tenant, "tenant", schemas.DefaultTenant, "tenant")
	p.StringVar(&f.session, "session", "", "session; drawn when empty")
	p.StringVar(&f.branch, "branch", "", "branch of the session (main)")
	p.StringVar(&f.parent, "parent", "", "branch that a new branch forks from")
	p.StringVar(&f.turn, "turn", "", "id of the turn; drawn when empty. The same id with the same content is the same turn")
	p.StringVar(&f.known, "known", "", "digest of an earlier result that this turn continues")
	p.StringVar(&f.model, "model", "", "model; the first one served when empty")
	p.StringVar(&f.system, "system", "", "system message before TEXT")
	p.Int64Var(&f.maxTokens, "max-tokens", 0, "most tokens to generate (up to the context)")
	p.Float64Var(&f.temperature, "temperature", 1, "sampling temperature, 0 is greedy")
	p.Float64Var(&f.topP, "top-p", 1, "nucleus sampling")
	p.Int64Var(&f.topK, "top-k", 0, "sample from the best K tokens only")
	p.Int64Var(&f.seed, "seed", 0, "seed of sampling; drawn when not given")
	p.StringArrayVar(&f.stop, "stop", nil, "stop string, may be repeated")
	p.IntVar(&f.priority, "priority", 0, "pass turns that came up to so many seconds earlier; negative to let later ones pass")
	p.BoolVar(&f.ignoreEOS, "ignore-eos", false, "go on after an end token, up to --max-tokens")
	p.StringVar(&f.file, "file", "", "read TEXT from this file")
	p.BoolVar(&f.raw, "raw", false, "complete TEXT as it is, without the chat template")
	p.StringVar(&f.body, "body", "", "read a whole Chat Completions body (JSON) from this file, \"-\" for standard input")
	p.StringVar(&f.tokens, "tokens", "", "read the prompt as a JSON array of token ids from this file")
	p.StringVar(&f.force, "force-output", "", "read the tokens to emit, a JSON array, from this file; the result is a replay")
	p.StringVar(&f.traceFile, "trace-file", "", "append this command's own spans to this file as JSON lines; the OTEL_EXPORTER_OTLP_ variables work too")
	p.DurationVar(&f.deadline, "deadline", 0, "fail the turn after this long (the service's default)")
	p.StringVarP(&f.output, "output", "o", "text", "text or json")
	p.BoolVar(&f.frames, "frames", false, "with -o json: one line per piece of the answer")
	p.BoolVar(&f.detach, "detach", false, "return when the turn is stored; run again with the same --session, --turn and content to read it")
}

// check finds what contradicts itself before anything is sent.
func (f *flags) check(given bool) error {
	if f.output != "text" && f.output != "json" {
		return usage("--output is %q, it is text or json", f.output)
	}
	if f.frames && f.output != "json" {
		return usage("--frames needs -o json")
	}
	inputs := 0
	for _, have := range [...]bool{given, f.file != "", f.tokens != "", f.body != ""} {
		if have {
			inputs++
		}
	}
	if inputs != 1 {
		return usage("give exactly one of TEXT, --file, --body and --tokens")
	}
	if f.system != "" && (f.raw || f.tokens != "" || f.body != "") {
		return usage("--system needs a chat message: TEXT or --file without --raw")
	}
	for _, id := range [...]struct{ name, v string }{
		{"--tenant", f.tenant}, {"--session", f.session}, {"--branch", f.branch}, {"--parent", f.parent}, {"--turn", f.turn},
	} {
		if id.v == "" && id.name != "--tenant" {
			continue
		}
		if err := schemas.CheckID(id.name, id.v); err != nil {
			return &ExitError{Code: 2, Err: err}
		}
	}
	if f.deadline < 0 {
		return usage("--deadline is %s, it must not be negative", f.deadline)
	}
	return nil
}

// asExit gives an error without an exit code the code 1.
func asExit(err error) error {
	var e *ExitError
	if err == nil || errors.As(err, &e) {
		return err
	}
	return &ExitError{Code: 1, Err: err}
}
