package schemas

// Role is what an executor takes.
type Role string

// The roles. Draining is never assigned: an executor reports it in between.
const (
	RolePrefill  Role = "prefill"
	RoleDecode   Role = "decode"
	RoleMixed    Role = "mixed"
	RoleDraining Role = "draining"
	RoleStandby  Role = "standby"
)

// Takes reports whether the role does that stage.
func (r Role) Takes(s Stage) bool {
	switch r {
	case RoleMixed:
		return s == StagePrefill || s == StageDecode
	case RolePrefill:
		return s == StagePrefill
	case RoleDecode:
		return s == StageDecode
	}
	return false
}

// SizeClass is a band of uncached prompt tokens.
type SizeClass string

// The size classes and their upper bounds in uncached prompt tokens.
const (
	SizeS SizeClass = "S" // ≤ 512
	SizeM SizeClass = "M" // ≤ 8,192
	SizeL SizeClass = "L"

	SizeSMax = 512
	SizeMMax = 8192
)

// ClassOf returns the size class of that many uncached prompt tokens.
func ClassOf(uncached int) SizeClass {
	switch {
	case uncached <= SizeSMax:
		return SizeS
	case uncached <= SizeMMax:
		return SizeM
	}
	return SizeL
}

// Max is the most uncached prompt tokens of the class; that of the empty class is S's.
func (c SizeClass) Max() int {
	switch c {
	case SizeM:
		return SizeMMax
	case SizeL:
		return MaxTokens
	}
	return SizeSMax
}

// Assignment is a ROLE message on role.<cell>.<executor>. Its stream sequence
// is the epoch; planner and people write it alike, with an expected last
// sequence.
type Assignment struct {
	Header
	Role    Role        `json:"role"`
	Classes []SizeClass `json:"classes,omitempty"` // empty means all
	// Absorb is the largest class of missing prompt tokens that an executor with role
	// decode computes itself, so that a burst that is shorter than the planner's loop
	// needs no role change. Empty means S.
	Absorb SizeClass `json:"absorb,omitempty"`
	// Pinned: people hold the executor in this role; a planner leaves it alone.
	Pinned bool   `json:"pinned,omitempty"`
	Plan   string `json:"plan,omitempty"`
	Reason string `json:"reason,omitempty"`
	By     string `json:"by,omitempty"`
}

// Check reports the first bad field.
func (a *Assignment) Check() error {
	switch a.Role {
	case RolePrefill, RoleDecode, RoleMixed, RoleStandby:
	default:
		return bad("role is %q, allowed are prefill, decode, mixed, standby", a.Role)
	}
	switch a.Absorb {
	case "", SizeS, SizeM, SizeL:
	default:
		return bad("absorb is %q, allowed are S, M, L", a.Absorb)
	}
	for _, c := range a.Classes {
		if c != SizeS && c != SizeM && c != SizeL {
			return bad("size class is %q, allowed are S, M, L", c)
		}
	}
	return nil
}

// Allows reports whether the assignment lets a job of that stage and size start.
func (a *Assignment) Allows(s Stage, uncached int) bool {
	if !a.Role.Takes(s) {
		return false
	}
	if len(a.Classes) == 0 || s == StageDecode {
		return true
	}
	c := ClassOf(uncached)
	for _, have := range a.Classes {
		if have == c {
			return true
		}
	}
	return false
}

// Held is one job in an executor's hands.
type Held struct {
	Job     string `json:"j"`
	Attempt int    `json:"a"`
	Stage   Stage  `json:"s"`
	// Alone: the turn was held by an executor that ended by itself. A router that
	// starts must know, or the turn could end more executors than are allowed.
	Alone bool `json:"x,omitempty"`
}

// KVFormat is the engine's part of a block key: executors with equal formats may
// read each other's blocks.
type KVFormat struct {
	Engine   string `json:"engine,omitempty"`
	Version  string `json:"version,omitempty"`
	Numerics string `json:"numerics,omitempty"`
	Layout   uint32 `json:"layout,omitempty"`
}

// Heartbeat says that an executor lives, what it may take and what it holds, on
// hb.<cell>.<executor>, every 500 ms.
type Heartbeat struct {
	Header
	Executor string `json:"executor"`
	// Boot identifies one life of the process: a restarted executor has another.
	Boot string `json:"boot"`
	Node string `json:"node"`
	Pool string `json:"pool"`
	Seq  uint64 `json:"seq"` // counts this life's heartbeats
	Role Role   `json:"role"`
	// Classes that its assignment allows; empty means all.
	Classes []SizeClass `json:"classes,omitempty"`
	Absorb  SizeClass   `json:"absorb,omitempty"` // that it may compute itself when it decodes
	Epoch   uint64      `json:"epoch"`            // sequence of the assignment in force
	// Size is how many accelerators it has; 0 means 1.
	Size int `json:"size,omitempty"`
	// Slots: sequences that the engine can hold; Context: tokens per sequence.
	Slots   int `json:"slots"`
	Context int `json:"context"`
	// KVTokens is how many tokens of KV its engine can hold for all sequences
	// together, TierBlocks how many blocks its node's memory can hold for its format;
	// 0 while unknown.
	KVTokens   int    `json:"kv_tokens,omitempty"`
	TierBlocks int    `json:"tier_blocks,omitempty"`
	Held       []Held `json:"held,omitempty"`
	// Kept are sequences that stay in the engine although no turn uses them, each as
	// the blocks 0..N-1 of a chain: the device medium. At most Slots.
	Kept []Extent `json:"kept,omitempty"`
	// Format is the engine's part of the block keys; lineage needs it to name extents.
	Format KVFormat `json:"format,omitzero"`
	// Rates measured over the last seconds; 0 while unknown.
	PrefillTPS float64 `json:"prefill_tps,omitempty"` // tokens per second of prefill
	DecodeTPS  float64 `json:"decode_tps,omitempty"`  // tokens per second and sequence
	// BringTPS: tokens per second whose blocks come in from other nodes or disk.
	BringTPS float64 `json:"bring_tps,omitempty"`
	// Dead is set by a supervisor that saw the process end. Outside tells that a
	// signal from outside ended it, which counts against no turn.
	Dead    bool   `json:"dead,omitempty"`
	Outside bool   `json:"outside,omitempty"`
	Cause   string `json:"cause,omitempty"`
}

// Check reports the first bad field.
func (h *Heartbeat) Check() error { return CheckID("executor", h.Executor) }

// GPU is one device as its driver reports it.
type GPU struct {
	UUID     string  `json:"uuid"`
	Name     string  `json:"name,omitempty"`
	Util     float64 `json:"util"`      // share of the driver's last sample period in which it computed, 0 to 1
	MemUsed  int64   `json:"mem_used"`  // bytes
	MemTotal int64   `json:"mem_total"` // bytes
	PowerW   float64 `json:"power_w"`
	TempC    int     `json:"temp_c"`
	// Slowed are the reasons for which its clocks are below what they could be, such
	// as thermal, power_cap, hw_slowdown.
	Slowed []string `json:"slowed,omitempty"`
	ECC    uint64   `json:"ecc,omitempty"` // uncorrected memory errors since the driver was loaded
	XID    uint64   `json:"xid,omitempty"` // the last critical error that the driver told, see NVIDIA's list of XID errors
}

// Report is what an executor measured, on report.<cell>.<executor>, every 2 s.
type Report struct {
	Header
	Executor      string `json:"executor"`
	Role          Role   `json:"role"`
	Epoch         uint64 `json:"epoch"`
	AtNS          int64  `json:"at_ns"`
	PrefillTokens uint64 `json:"prefill_tokens"` // computed since the start
	DecodeTokens  uint64 `json:"decode_tokens"`
	CachedTokens  uint64 `json:"cached_tokens"`
	BusyNS        int64  `json:"busy_ns"` // engine time since the start
	// The parts of BusyNS spent on prefill and decode, decode steps, and the sum of
	// their rows: DecodeRows/DecodeSteps is the mean batch.
	PrefillNS   int64  `json:"prefill_ns,omitempty"`
	DecodeNS    int64  `json:"decode_ns,omitempty"`
	DecodeSteps uint64 `json:"decode_steps,omitempty"`
	DecodeRows  uint64 `json:"decode_rows,omitempty"`
	// KVUsed is how many tokens of KV the running sequences hold now.
	KVUsed       int      `json:"kv_used,omitempty"`
	Queued       int      `json:"queued"`
	Running      int      `json:"running"`
	SlotsFree    int      `json:"slots_free"`
	DeviceBlocks int      `json:"device_blocks"`
	Devices      []string `json:"devices,omitempty"`
	// GPUs are what the driver says of the devices; empty without a driver.
	GPUs []GPU `json:"gpus,omitempty"`
	// Unfit says why no work should be given to this executor, by the health of its
	// devices; empty when it is fit.
	Unfit string `json:"unfit,omitempty"`
	// Problem says why the last assignment is not in force.
	Problem string `json:"problem,omitempty"`
	// FlipNS is the duration of the last role change in nanoseconds.
	FlipNS int64 `json:"flip_ns,omitempty"`
	// Flips counts role changes that came into force or were rolled back; Flip is the last one.
	Flips uint64 `json:"flips,omitempty"`
	Flip  *Flip  `json:"flip,omitempty"`
}

// Flip is one role change. Its stages follow each other, in nanoseconds: jobs that had
// not begun are returned; running ones stop at a boundary, are sealed and handed over;
// the engine is verified.
type Flip struct {
	Epoch    uint64 `json:"epoch"` // of the assignment
	From     Role   `json:"from"`
	To       Role   `json:"to"`
	Plan     string `json:"plan,omitempty"`
	AtNS     int64  `json:"at_ns"` // when the assignment arrived, Unix time
	ReturnNS int64  `json:"return_ns"`
	HandNS   int64  `json:"hand_ns"`
	VerifyNS int64  `json:"verify_ns"`
	Returned int    `json:"returned"`       // jobs that had not begun
	Handed   int    `json:"handed"`         // jobs that were handed over
	Kept     int    `json:"kept"`           // jobs that went on under the new role
	Finished int    `json:"finished"`       // decodes that ended sooner than a hand-over
	Back     string `json:"back,omitempty"` // why the old role came back; empty when the new one is in force
}

// Check reports the first bad field.
func (r *Report) Check() error { return CheckID("executor", r.Executor) }
