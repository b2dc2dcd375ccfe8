package route

import "github.com/weir-dev/weir/planner/admit"

// Config of a router. Durations are nanoseconds.
type Config struct {
	Cell  string
	Epoch uint64 // of the router's lease; executors see it in jobs

	// SilentNS: an executor without a heartbeat for so long loses its jobs. Six
	// heartbeats, 3 s.
	SilentNS int64
	// GraceNS is added after the bus was away or the router started: heartbeats
	// could not arrive. 1.5 s, three heartbeats.
	GraceNS int64
	// HeartbeatNS is the executors' interval, 500 ms.
	HeartbeatNS int64
	// TickNS is how often liveness and deadlines are looked at. 100 ms.
	TickNS int64
	// LoadNS is the interval of Load messages, 500 ms.
	LoadNS int64

	// PauseNS: a step that comes so much later than it was asked for means that
	// this process stood still, so silence of executors says nothing. 1 s.
	PauseNS int64
	// ForgetNS: an executor that is away for so long is forgotten. 5 min.
	ForgetNS int64
	// MaxExecutors bounds known executors; a cell has 256. Heartbeats of more are
	// counted as ignored. 1,024.
	MaxExecutors int

	// MaxDeaths: a turn that ended so many executors is not tried again. 2.
	MaxDeaths int
	// MaxErrors: a turn that an engine refused so often has failed. 3.
	MaxErrors int
	// MaxAttempts bounds all tries of a turn together, but for those that worked on it for
	// WorkedNS and gave it back sealed, as when roles change: its deadline bounds those.
	// 32, 1 s.
	MaxAttempts int
	WorkedNS    int64

	// DirectMax: a turn with at most so many uncached prompt tokens before its
	// tail goes straight to a decode executor. 512, the bound of size class S;
	// negative means never.
	DirectMax int
	// PrefillNS bounds the work that waits at one prefill executor, beyond one job, by
	// the time that it takes at the executor's measured speed: about two steps of a large
	// worker. PrefillTokens is the bound until a speed is measured, and the least.
	// PrefillJobs bounds the jobs, per accelerator. A flip or a crash strands no more
	// than this. 1 s, 2,048 tokens, 8 jobs.
	PrefillNS     int64
	PrefillTokens int
	PrefillJobs   int
	// ScanMax bounds how many turns are looked at per step that those who have room
	// cannot take. 64.
	ScanMax int
	// PrefillTPS is assumed until an executor has measured its speed. 1,000 tokens/s.
	PrefillTPS float64

	// MaxNodes and MaxEnds bound the directory of who holds which blocks: nodes, and
	// ends of extents, of which the least used go first. 1,024 nodes; 262,144 ends,
	// about 40 MB, some five per session context.
	MaxNodes int
	MaxEnds  int
	// BringTPS is assumed until an executor has measured how many tokens per second
	// come in from other nodes: high, so that it is tried. 20,000 tokens/s.
	BringTPS float64
	// BringNS is what bringing in costs however little it is: a connection and a
	// request. 2 ms.
	BringNS int64
	// ImportTPS is how many tokens per second an engine takes from the host's memory,
	// roughly: what a sequence that stayed in it saves. 100,000 tokens/s.
	ImportTPS float64
	// MaxGives bounds the jobs that bring blocks in from one node at a time. 16.
	MaxGives int
	// SpreadNS is how much longer a turn may take to bring or compute blocks on an
	// empty decode executor than on a full one that has them. A full batch is slower,
	// and whoever holds a prefix that many begin with must not get all of them. 500 ms.
	SpreadNS int64
	// Handover: a prefill executor gives blocks to any decode executor directly, engine
	// to engine, and Job.PrefillOn names it. So prefill and decode may be apart although
	// each executor's node has a memory of its own. Without it blocks go through the
	// memory of nodes.
	Handover bool
	// Choose places turns in the manner of another system; nil is weir's own cost.
	Choose Chooser
	// Admit lets sessions in only as far as memory holds their contexts, see package
	// admit, whose settings are in Book. New sessions that are expected to come back also
	// wait while what is to be computed takes longer than TTFTNS, 2 s, or, where TPOTNS is
	// set, streams are slower than a token in so many nanoseconds.
	Admit          bool
	Book           admit.Config
	TTFTNS, TPOTNS int64
	// Fair orders turns that wait.
	Fair admit.FairConfig
	// SyncBackoffNS is the wait before a node that did not answer is asked again. It
	// doubles up to SyncBackoffMaxNS. 200 ms, 30 s.
	SyncBackoffNS    int64
	SyncBackoffMaxNS int64
}

func (c *Config) defaults() {
	set(&c.SilentNS, 3_000_000_000)
	set(&c.GraceNS, 1_500_000_000)
	set(&c.HeartbeatNS, 500_000_000)
	set(&c.TickNS, 100_000_000)
	set(&c.LoadNS, 500_000_000)
	set(&c.PauseNS, 1_000_000_000)
	set(&c.ForgetNS, 300_000_000_000)
	set(&c.MaxExecutors, 1024)
	set(&c.TTFTNS, 2_000_000_000)
	set(&c.MaxDeaths, 2)
	set(&c.MaxErrors, 3)
	set(&c.MaxAttempts, 32)
	set(&c.WorkedNS, 1_000_000_000)
	set(&c.DirectMax, 512)
	set(&c.PrefillNS, 1_000_000_000)
	set(&c.PrefillJobs, 8)
	set(&c.PrefillTokens, 2048)
	set(&c.ScanMax, 64)
	set(&c.PrefillTPS, 1000)
	set(&c.MaxNodes, 1024)
	set(&c.MaxEnds, 1<<18)
	set(&c.BringTPS, 20_000)
	set(&c.BringNS, 2_000_000)
	set(&c.ImportTPS, 100_000)
	set(&c.MaxGives, 16)
	set(&c.SpreadNS, 500_000_000)
	set(&c.SyncBackoffNS, 200_000_000)
	set(&c.SyncBackoffMaxNS, 30_000_000_000)
}

func set[T int | int64 | float64](p *T, v T) {
	if *p == 0 {
		*p = v
	}
}
