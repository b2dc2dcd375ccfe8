package serve

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weir-dev/weir/streams"
)

// payloadName is what people call the stream behind the payload bucket.
const payloadName = streams.PayloadBucket

// retainable are the streams whose age may be chosen, with the names that people use.
var retainable = []struct{ name, stream string }{
	{streams.Agent, streams.Agent},
	{streams.Result, streams.Result},
	{payloadName, streams.PayloadStream},
	{streams.Out, streams.Out},
	{streams.Ckpt, streams.Ckpt},
	{streams.Dead, streams.Dead},
	{streams.Plan, streams.Plan},
}

// sessionName is how long lineage remembers a session that has no new turn. It is no
// stream, but its text is in the snapshots.
const sessionName = "SESSION"

func retainNames() string {
	names := []string{sessionName}
	for _, r := range retainable {
		names = append(names, r.name)
	}
	return strings.Join(names, ", ")
}

// Bounds of ages.
const (
	minAge = time.Minute
	maxAge = 10 * 365 * 24 * time.Hour
)

// parseAge reads a duration such as 90m, 36h or 7d.
func parseAge(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if days, ok := strings.CutSuffix(s, "d"); ok {
		var n float64
		n, err = strconv.ParseFloat(days, 64)
		// A number that does not fit would wrap around.
		if n = n * 24 * float64(time.Hour); n > float64(maxAge) || n != n {
			n = 2 * float64(maxAge)
		}
		d = time.Duration(n)
	}
	if err != nil || d < minAge || d > maxAge {
		return 0, fmt.Errorf("%q is not a time from %s to %d days, such as 90m, 36h or 7d", s, minAge, int(maxAge.Hours()/24))
	}
	return d, nil
}

// keepSessions is how long lineage remembers idle sessions; 0 is as long as it has room.
func (o *Options) keepSessions() time.Duration {
	return o.ages(func(string, ...any) {})[sessionName]
}

// ages are the times that --retain chooses, by stream. Every problem is told to bad.
func (o *Options) ages(bad func(format string, args ...any)) map[string]time.Duration {
	out := map[string]time.Duration{}
	for name, text := range o.Retain {
		stream := ""
		if strings.ToUpper(name) == sessionName {
			stream = sessionName
		}
		for _, r := range retainable {
			if r.name == strings.ToUpper(name) || r.stream == name {
				stream = r.stream
			}
		}
		if stream == "" {
			bad("--retain names %q, known are %s", name, retainNames())
			continue
		}
		d, err := parseAge(text)
		if err != nil {
			bad("--retain %s: %w", name, err)
			continue
		}
		out[stream] = d
	}
	return out
}

// checkRetention reports choices that would break a promise: what a message refers
// to must live as long as the message, and a turn until its deadline.
func (o *Options) checkRetention(bad func(format string, args ...any)) {
	chosen := o.ages(bad)
	if len(chosen) == 0 {
		return
	}
	topo := streams.Topology(streams.Options{MaxAge: chosen})
	age := func(name string) time.Duration {
		s, _ := streams.Find(topo, name)
		return s.MaxAge
	}
	agent := age(streams.Agent)
	for _, f := range [...]struct{ name, stream, why string }{
		{payloadName, streams.PayloadStream, "turns refer to large bodies and images that are there"},
		{streams.Result, streams.Result, "a turn without a result would be computed again after a restart"},
	} {
		if got := age(f.stream); got < agent {
			bad("--retain: %s is kept for %s, less than AGENT (%s), but %s; choose %s=%s or more", f.name, got, agent, f.why, f.name, agent)
		}
	}
	for _, name := range [...]string{streams.Agent, streams.Ckpt} {
		if got := age(name); got < o.Deadline {
			bad("--retain: %s is kept for %s, less than a turn may take (--deadline %s)", name, got, o.Deadline)
		}
	}
}
