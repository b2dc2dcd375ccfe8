package streams

import (
	"errors"
	"testing"
	"time"

	"github.com/weir-dev/weir/schemas"
	"pgregory.net/rapid"
)

func sample(r schemas.Root) string {
	s := string(r)
	for _, n := range schemas.Layout(r) {
		s += "." + n
	}
	return s
}

func TestEveryRootHasOneStream(t *testing.T) {
	topo := Topology(Options{})
	core := map[schemas.Root]bool{schemas.RootHB: true, schemas.RootCancel: true, schemas.RootSync: true, schemas.RootTokens: true, schemas.RootSession: true}
	for _, r := range schemas.Roots() {
		var got []string
		for _, s := range topo {
			for _, p := range s.Subjects {
				if Matches(p, sample(r)) {
					got = append(got, s.Name)
				}
			}
		}
		switch {
		case core[r] && (len(got) != 0 || StreamOf(r) != ""):
			t.Errorf("core root %s is kept by %v", r, got)
		case !core[r] && (len(got) != 1 || got[0] != StreamOf(r)):
			t.Errorf("root %s is kept by %v, StreamOf says %q", r, got, StreamOf(r))
		}
	}
	if err := Check(topo); err != nil {
		t.Fatal(err)
	}
}

func TestTopologyIsBounded(t *testing.T) {
	topo := Topology(Options{Replicas: 3})
	for _, s := range topo {
		if s.MaxConsumers < 5000 || s.MaxBytes <= 0 || s.MaxMsgSize < schemas.MaxMessage || s.MaxMsgSize > 1<<20 {
			t.Errorf("%s: max_consumers %d, max_bytes %d, max_msg_size %d", s.Name, s.MaxConsumers, s.MaxBytes, s.MaxMsgSize)
		}
		if want := map[Store]int{File: 3, Memory: 1}[s.Store]; s.Replicas != want {
			t.Errorf("%s has %d replicas, want %d", s.Name, s.Replicas, want)
		}
	}
	file, mem := Totals(topo)
	if file > 6<<30 || mem > 1<<30 {
		t.Errorf("the laptop defaults need %d MiB of disk and %d MiB of memory", file>>20, mem>>20)
	}
}

func TestOptionsShrink(t *testing.T) {
	topo := Topology(Options{Scale: 0.0001, MaxBytes: map[string]int64{Result: 3 << 20}, MaxConsumers: 9})
	if err := Check(topo); err != nil {
		t.Fatal(err)
	}
	r, _ := Find(topo, Result)
	if r.MaxBytes != 3<<20 || r.MaxConsumers != 9 {
		t.Errorf("RESULT has %d bytes, %d consumers", r.MaxBytes, r.MaxConsumers)
	}
}

func TestCheckRefuses(t *testing.T) {
	f := func(name string, change func(topo []Stream)) {
		t.Helper()
		topo := Topology(Options{})
		change(topo)
		if err := Check(topo); !errors.Is(err, ErrTopology) {
			t.Errorf("%s: %v", name, err)
		}
	}
	f("same name", func(x []Stream) { x[1].Name = x[0].Name })
	f("overlap", func(x []Stream) { x[1].Subjects = []string{"agent.>"} })
	f("overlap with a stored form", func(x []Stream) { x[1].Subjects = []string{"agent.*.*.*.*"} })
	f("no subjects", func(x []Stream) { x[1].Subjects = nil })
	f("too small", func(x []Stream) { x[1].MaxBytes = 1000 })
	f("no consumers", func(x []Stream) { x[1].MaxConsumers = 0 })
	f("window", func(x []Stream) { x[2].Duplicates = 24 * time.Hour })
}

func TestMatchesAndOverlaps(t *testing.T) {
	f := func(p, s string, match bool) {
		t.Helper()
		if Matches(p, s) != match {
			t.Errorf("Matches(%q, %q) is %v", p, s, !match)
		}
		if match && !Overlaps(p, s) {
			t.Errorf("Overlaps(%q, %q) is false", p, s)
		}
	}
	f("a.*", "a.b", true)
	f("a.*", "a.b.c", false)
	f("a.*", "a", false)
	f("a.>", "a.b.c", true)
	f("a.>", "a", false)
	f(">", "a.b", true)
	f("a.b", "a.b", true)
	f("a.*.c", "a.b.d", false)
	f("a.*", "a.", false)
	for _, c := range []struct {
		a, b string
		want bool
	}{{"a.*", "*.b", true}, {"a.*", "b.*", false}, {"a.>", "a.b.c", true}, {"a.*.c", "a.*", false}, {"a.*.c", "a.b.*", true}} {
		if Overlaps(c.a, c.b) != c.want || Overlaps(c.b, c.a) != c.want {
			t.Errorf("Overlaps(%q, %q) is not %v", c.a, c.b, c.want)
		}
	}
}

func TestStoredSubjectParsesBack(t *testing.T) {
	id := rapid.StringMatching(`[A-Za-z0-9_-]{1,12}`)
	rapid.Check(t, func(t *rapid.T) {
		tenant, session := id.Draw(t, "tenant"), id.Draw(t, "session")
		pub := schemas.AgentSubject(tenant, session, schemas.EventTurn)
		got, err := schemas.ParseSubject(StoredSubject(pub))
		if err != nil {
			t.Fatal(err)
		}
		want, err := schemas.ParseSubject(pub)
		if err != nil || got != want {
			t.Fatalf("%q is stored as %q", pub, StoredSubject(pub))
		}
		if p := Partition(tenant, session); p < 0 || p >= Partitions || !Matches(PartitionFilter(p), StoredSubject(pub)) {
			t.Fatalf("partition %d", p)
		}
	})
	if s := "ready.c0.t.s.u"; StoredSubject(s) != s {
		t.Error("a subject of another root changed")
	}
}

func TestCheckInputs(t *testing.T) {
	topo := Topology(Options{})
	ok := []Input{{Stream: Agent}, {Stream: Ready, Policy: Hold}, {Core: true, Filters: []string{"hb.c0.*"}}, {Stream: Done, Policy: NoAck}}
	if err := CheckInputs(topo, ok); err != nil {
		t.Fatal(err)
	}
	for name, in := range map[string][]Input{
		"unknown stream":      {{Stream: "NOPE"}},
		"core without filter": {{Core: true}},
		"work queue, no acks": {{Stream: Ready, Policy: NoAck}},
		"work queue, new":     {{Stream: Ready, Deliver: DeliverNew}},
		"last without filter": {{Stream: Role, Policy: NoAck, Deliver: DeliverLastPerSubject}},
		"two acknowledged":    {{Stream: Agent}, {Stream: Agent, Policy: Hold}},
	} {
		if err := CheckInputs(topo, in); !errors.Is(err, ErrInput) {
			t.Errorf("%s: %v", name, err)
		}
	}
	d := Input{Policy: Hold}.WithDefaults()
	if d.Batch != DefaultBatch || d.AckWait != DefaultHoldWait || d.MaxAckPending != DefaultMaxAckPendingHold {
		t.Errorf("defaults of a held input: %+v", d)
	}
	w := Input{Filters: []string{"a.*", "b.>"}}
	if !w.Wants("a.x") || !w.Wants("b.x.y") || w.Wants("c.x") || !(&Input{}).Wants("c") {
		t.Error("filters")
	}
}
