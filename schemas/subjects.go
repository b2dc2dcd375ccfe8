package schemas

import (
	"fmt"
	"strings"
)

// Root is the first token of a subject; it decides what the message is.
type Root string

// The roots. Each stands in exactly one stream (streams/topology.go) unless it
// is marked core, which means that NATS keeps no copy.
const (
	RootAgent   Root = "agent"   // agent.<tenant>.<session>.<kind>
	RootReady   Root = "ready"   // ready.<cell>.<tenant>.<session>.<turn>
	RootPrefill Root = "prefill" // prefill.<cell>.<executor>.<job>
	RootDecode  Root = "decode"  // decode.<cell>.<executor>.<job>
	RootDone    Root = "done"    // done.<cell>.<job>
	RootKV      Root = "kv"      // kv.<cell>.<node>
	RootBranch  Root = "branch"  // branch.<cell>.<node>
	RootRole    Root = "role"    // role.<cell>.<executor>
	RootReport  Root = "report"  // report.<cell>.<executor>
	RootPlan    Root = "plan"    // plan.<cell>
	RootMode    Root = "mode"    // mode.<cell>
	RootLoad    Root = "load"    // load.<cell>
	RootOut     Root = "out"     // out.<tenant>.<session>.<turn>
	RootCkpt    Root = "ckpt"    // ckpt.<tenant>.<session>.<turn>
	RootResult  Root = "result"  // result.<tenant>.<session>.<turn>
	RootSnap    Root = "snap"    // snap.<actor>.<shard>
	RootDead    Root = "dead"    // dead.<stage>.<tenant>
	RootLease   Root = "lease"   // lease.<cell>.<service>
	RootHB      Root = "hb"      // hb.<cell>.<executor>, core
	RootCancel  Root = "cancel"  // cancel.<cell>.<executor>, core
	RootSync    Root = "sync"    // sync.<node>, core, request-reply
	RootTokens  Root = "tokens"  // tokens.<cell>, core, request-reply
	RootSession Root = "session" // session.<cell>, core, request-reply
)

// layouts lists the token names after the root. It is the whole grammar.
var layouts = map[Root][]string{
	RootAgent:   {"tenant", "session", "kind"},
	RootReady:   {"cell", "tenant", "session", "turn"},
	RootPrefill: {"cell", "executor", "job"},
	RootDecode:  {"cell", "executor", "job"},
	RootDone:    {"cell", "job"},
	RootKV:      {"cell", "node"},
	RootBranch:  {"cell", "node"},
	RootRole:    {"cell", "executor"},
	RootReport:  {"cell", "executor"},
	RootPlan:    {"cell"},
	RootMode:    {"cell"},
	RootLoad:    {"cell"},
	RootOut:     {"tenant", "session", "turn"},
	RootCkpt:    {"tenant", "session", "turn"},
	RootResult:  {"tenant", "session", "turn"},
	RootSnap:    {"actor", "shard"},
	RootDead:    {"stage", "tenant"},
	RootLease:   {"cell", "service"},
	RootHB:      {"cell", "executor"},
	RootCancel:  {"cell", "executor"},
	RootSync:    {"node"},
	RootTokens:  {"cell"},
	RootSession: {"cell"},
}

// Roots returns all roots in a fixed order.
func Roots() []Root {
	return []Root{
		RootAgent, RootReady, RootPrefill, RootDecode, RootDone, RootKV, RootBranch, RootRole, RootReport, RootPlan, RootMode, RootLoad,
		RootOut, RootCkpt, RootResult, RootSnap, RootDead, RootLease, RootHB, RootCancel, RootSync, RootTokens, RootSession,
	}
}

// Layout returns the names of the tokens after the root, or nil for an unknown root.
func Layout(r Root) []string { return append([]string(nil), layouts[r]...) }

// Subject is a parsed subject. Fields that the root does not have are empty.
type Subject struct {
	Root   Root
	Tokens [4]string // in the order of Layout(Root)
}

// Get returns the token of that name, or "" when the root has none.
func (s Subject) Get(name string) string {
	for i, n := range layouts[s.Root] {
		if n == name {
			return s.Tokens[i]
		}
	}
	return ""
}

// String puts the subject together again.
func (s Subject) String() string {
	n := len(layouts[s.Root])
	return string(s.Root) + "." + strings.Join(s.Tokens[:n], ".")
}

// ParseSubject splits and checks a subject. Every token must be a valid id, so
// wildcards and empty tokens are refused. AGENT messages are stored with their
// partition behind the root (agent.<partition>.<tenant>…, see streams); both
// forms are accepted and parse to the same Subject.
func ParseSubject(s string) (Subject, error) {
	if len(s) > 6*(MaxIDLen+1) {
		return Subject{}, fmt.Errorf("%w: %d characters is longer than any subject of weir", ErrSubject, len(s))
	}
	parts := strings.Split(s, ".")
	out := Subject{Root: Root(parts[0])}
	layout, ok := layouts[out.Root]
	if !ok {
		return Subject{}, fmt.Errorf("%w: %q starts with none of weir's roots", ErrSubject, s)
	}
	tokens := parts[1:]
	if out.Root == RootAgent && len(tokens) == len(layout)+1 && isPartition(tokens[0]) {
		tokens = tokens[1:]
	}
	if len(tokens) != len(layout) {
		return Subject{}, fmt.Errorf("%w: %q has %d tokens after the root, %s.<%s> has %d", ErrSubject, s, len(tokens),
			out.Root, strings.Join(layout, ">.<"), len(layout))
	}
	for i, tok := range tokens {
		if !ValidID(tok) {
			return Subject{}, fmt.Errorf("%w: %s in %q: %w", ErrSubject, layout[i], s, CheckID(layout[i], tok))
		}
		out.Tokens[i] = tok
	}
	return out, nil
}

func isPartition(s string) bool {
	if len(s) == 0 || len(s) > 2 {
		return false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

// The builders below join tokens without checking them: ids are checked once,
// where they enter (gateway, lineage, configuration).

// AgentSubject is where a caller publishes a turn or an event.
func AgentSubject(tenant, session string, kind EventKind) string {
	return "agent." + tenant + "." + session + "." + string(kind)
}

// ReadySubject is where lineage publishes a rendered turn.
func ReadySubject(cell, tenant, session, turn string) string {
	return "ready." + cell + "." + tenant + "." + session + "." + turn
}

// JobSubject is where the router places a job on an executor.
func JobSubject(stage Stage, cell, executor, job string) string {
	return string(stage) + "." + cell + "." + executor + "." + job
}

// DoneSubject is where an executor says that a stage ended.
func DoneSubject(cell, job string) string { return "done." + cell + "." + job }

// KVSubject carries the block notices of a tier node.
func KVSubject(cell, node string) string { return "kv." + cell + "." + node }

// BranchSubject carries branch state changes to a node that holds the branch.
func BranchSubject(cell, node string) string { return "branch." + cell + "." + node }

// RoleSubject holds the assignment of one executor.
func RoleSubject(cell, executor string) string { return "role." + cell + "." + executor }

// ReportSubject holds the last report of one executor.
func ReportSubject(cell, executor string) string { return "report." + cell + "." + executor }

// PlanSubject carries the decisions of a cell's planner.
func PlanSubject(cell string) string { return "plan." + cell }

// ModeSubject holds the mode that people set for a cell's planner.
func ModeSubject(cell string) string { return "mode." + cell }

// LoadSubject holds the last load that a cell's router saw.
func LoadSubject(cell string) string { return "load." + cell }

// OutSubject carries the frames of a turn.
func OutSubject(tenant, session, turn string) string {
	return "out." + tenant + "." + session + "." + turn
}

// CkptSubject holds the last checkpoint of a turn.
func CkptSubject(tenant, session, turn string) string {
	return "ckpt." + tenant + "." + session + "." + turn
}

// ResultSubject holds the result of a turn.
func ResultSubject(tenant, session, turn string) string {
	return "result." + tenant + "." + session + "." + turn
}

// SnapSubject holds the last snapshot of one shard of an actor.
func SnapSubject(actor, shard string) string { return "snap." + actor + "." + shard }

// DeadSubject is where a message goes that could not be processed.
func DeadSubject(stage, tenant string) string { return "dead." + stage + "." + tenant }

// LeaseSubject holds the lease of a service that runs once per cell.
func LeaseSubject(cell, service string) string { return "lease." + cell + "." + service }

// HBSubject carries the heartbeats of one executor.
func HBSubject(cell, executor string) string { return "hb." + cell + "." + executor }

// CancelSubject carries cancels to one executor.
func CancelSubject(cell, executor string) string { return "cancel." + cell + "." + executor }

// TokensSubject answers token ranges of a turn's prompt.
func TokensSubject(cell string) string { return "tokens." + cell }

// SessionSubject answers what lineage knows of a session.
func SessionSubject(cell string) string { return "session." + cell }

// SyncSubject answers the full list of a node's sealed extents.
func SyncSubject(node string) string { return "sync." + node }

// Names of the NATS services (nats.go/micro).
const (
	TurnService     = "weir.turn"
	TokenizeService = "weir.tokenize" // weir.tokenize.<model>
)
