package route

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
	// MaxAttempts bounds all tries of a turn together. 32.
	MaxAttempts int

	// DirectMax: a turn with at most so many uncached prompt tokens before its
	// tail goes straight to a decode executor. 512, the bound of size class S;
	// negative means never.
	DirectMax int
	// PrefillJobs and PrefillTokens bound what waits at one prefill executor: at
	// most so many jobs, and beyond the first only up to so many tokens. A flip or
	// a crash strands no more than this. 4 jobs, 2,048 tokens.
	PrefillJobs   int
	PrefillTokens int
	// ScanMax bounds how many waiting turns of models that some executor runs are
	// looked at per step. 512.
	ScanMax int
	// PrefillTPS is assumed until an executor has measured its speed. 1,000 tokens/s.
	PrefillTPS float64
}

func (c *Config) defaults() {
	set(&c.SilentNS, 3_000_000_000)
	set(&c.GraceNS, 1_500_000_000)
	set(&c.HeartbeatNS, 500_000_000)
	set(&c.TickNS, 100_000_000)
	set(&c.PauseNS, 1_000_000_000)
	set(&c.ForgetNS, 300_000_000_000)
	set(&c.MaxExecutors, 1024)
	set(&c.MaxDeaths, 2)
	set(&c.MaxErrors, 3)
	set(&c.MaxAttempts, 32)
	set(&c.DirectMax, 512)
	set(&c.PrefillJobs, 4)
	set(&c.PrefillTokens, 2048)
	set(&c.ScanMax, 512)
	set(&c.PrefillTPS, 1000)
}

func set[T int | int64 | float64](p *T, v T) {
	if *p == 0 {
		*p = v
	}
}
