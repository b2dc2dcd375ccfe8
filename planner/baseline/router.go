package baseline

// Cost is the router's cost function (lib/kv-router/src/scheduling/selector/default.rs,
// config.rs). Zero weights mean zero: start from DefaultCost.
type Cost struct {
	BlockTokens   int
	OverlapCredit float64 // of blocks that the worker's device holds
	OverlapDecay  float64 // how fast that falls with the worker's backlog
	HostCredit    float64 // of blocks in its host memory
	DiskCredit    float64
	SharedCredit  float64 // of blocks in a cache of all workers, beyond those on the device
	PrefillScale  float64
	RequestWeight float64 // of each active request, in blocks
	TrackPrefill  bool    // count the prompt and the backlog of prompts
	AssumeReuse   bool    // blocks that active sequences hold already cost nothing
}

// DefaultCost has the defaults at the commit that doc.go names.
func DefaultCost() Cost {
	return Cost{BlockTokens: 64, OverlapCredit: 1, HostCredit: 0.75, DiskCredit: 0.25, PrefillScale: 1, TrackPrefill: true, AssumeReuse: true}
}

// DecodeCost is what the decode leg uses: load only
// (lib/llm/src/kv_router/prefill_router/mod.rs, build_decode_router_override).
func DecodeCost() Cost {
	c := DefaultCost()
	c.OverlapCredit, c.HostCredit, c.DiskCredit, c.TrackPrefill, c.AssumeReuse = 0, 0, 0, false, false
	return c
}

// Load is one worker as the router sees it for one request. Blocks are of BlockTokens
// tokens.
type Load struct {
	PrefillTokens      int     // of prompts that it is yet to compute
	Device, Host, Disk float64 // leading blocks of the request that it holds, by medium, each counted once
	Shared             float64 // blocks in the cache of all, beyond Device
	ActiveBlocks       float64 // of sequences in work
	Reused             float64 // blocks of the request that sequences in work hold
	Requests           int
}

// Of is the cost in blocks of giving a request of isl prompt tokens to a worker; least
// is the smallest PrefillTokens of all workers. The lowest cost wins.
func (c Cost) Of(isl, least int, w Load) float64 {
	block := float64(max(1, c.BlockTokens))
	request := max(1, float64(isl)/block)
	raw := 0.0
	if c.TrackPrefill {
		raw = float64(w.PrefillTokens+isl) / block
	}
	decay := 1 / (1 + c.OverlapDecay*(float64(w.PrefillTokens-least)/block)/request)
	credit := c.OverlapCredit*decay*w.Device + c.HostCredit*w.Host + c.DiskCredit*w.Disk + c.SharedCredit*w.Shared
	decode := w.ActiveBlocks + request
	if c.AssumeReuse {
		decode -= w.Reused
	}
	return c.total(raw, credit, decode, w.Requests)
}

func (c Cost) total(raw, credit, decode float64, requests int) float64 {
	return c.PrefillScale*max(0, raw-credit) + decode + c.RequestWeight*float64(requests)
}

// reservoir picks among equals: each of n that were seen has the chance 1/n.
type reservoir struct {
	pick func(n int) int // uniform in [0, n)
	best float64
	at   int
	n    int
}

func (r *reservoir) see(i int, cost float64) {
	switch {
	case r.n == 0 || cost < r.best:
		r.best, r.at, r.n = cost, i, 1
	case cost == r.best:
		r.n++
		if r.pick(r.n) == 0 {
			r.at = i
		}
	}
}
