package tierchaos

import (
	"errors"
	"time"
)

// Options of a run. The zero value is the short form.
type Options struct {
	Seed    uint64        // 0 means 1
	Dir     string        // folder of the arena; "" makes one on tmpfs where there is one
	Clients int           // client processes; 0 means 10
	For     time.Duration // of the part with faults; 0 means 8 s
	StopFor time.Duration // how long one client is stopped; 0 means 2 s, the long form takes a minute
	Flips   int           // single bits flipped in blocks; 0 means 2,000. As many are flipped in headers.
	Log     func(format string, args ...any)
}

func (o *Options) fill() {
	if o.Seed == 0 {
		o.Seed = 1
	}
	if o.Clients == 0 {
		o.Clients = 10
	}
	if o.For == 0 {
		o.For = 8 * time.Second
	}
	if o.StopFor == 0 {
		o.StopFor = 2 * time.Second
	}
	if o.Flips == 0 {
		o.Flips = 2000
	}
	if o.Log == nil {
		o.Log = func(string, ...any) {}
	}
}

// Long is the form in which one client is stopped for a minute.
func Long() Options {
	return Options{For: 64 * time.Second, StopFor: time.Minute, Flips: 8000}
}

// Result is what a run counted. All but the first group must be 0.
type Result struct {
	Reads, Puts, Full, Down    int   // by clients: blocks read and sealed, refusals, no daemon
	Served                     int64 // bytes that were read and compared
	Kills, Restarts, Stops     int
	Checked                    int // sealed blocks that were looked for after a restart
	Evictions                  int
	Flips, HeaderFlips, Probes int // bits flipped, and look-ups of another tenant's keys

	BytesDiffering int64 // bytes served that are not those that were sealed
	BlocksLost     int   // sealed blocks that were not there after a restart of the daemon
	BytesLeaked    int64 // allocated + free differs from the total, or files that stay
	SharedBlocks   int   // blocks of one tenant that the other one found
	FlipsMissed    int   // flipped bits that no reader saw
	HeaderWrong    int   // answers that were wrong after bits of headers were flipped
	Problems       []string
}

// Err is nil if nothing that must be 0 is not.
func (r *Result) Err() error {
	var errs []error
	for _, p := range r.Problems {
		errs = append(errs, errors.New("tierchaos: "+p))
	}
	for _, v := range []struct {
		n    int64
		what string
	}{
		{r.BytesDiffering, "bytes served differ from those sealed"},
		{int64(r.BlocksLost), "sealed blocks were lost by a restart"},
		{r.BytesLeaked, "bytes leaked"},
		{int64(r.SharedBlocks), "blocks were shared between tenants"},
		{int64(r.FlipsMissed), "flipped bits were not seen"},
		{int64(r.HeaderWrong), "answers were wrong after flips in headers"},
	} {
		if v.n != 0 {
			errs = append(errs, errCount{v.n, v.what})
		}
	}
	return errors.Join(errs...)
}
