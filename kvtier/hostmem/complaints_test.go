package hostmem

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/weir-dev/weir/kvtier"
)

// complaints are what users of other KV stores reported, each as a test with the
// input that was reported. docs/complaints.md says for every one what it was about,
// or why it does not apply. The names are those of the first issue of each.
var complaints = []struct {
	no   int
	name string
	run  func(*testing.T)
}{
	{1, "lmcache-3388", unreadableBlockEndsThePrefix},
	{2, "lmcache-4463", layoutIsInTheKey},
	{3, "lmcache-4385", ownContentOrAMiss},
	{4, "lmcache-4991", manyFillsOfOneKey},
	{5, "lmcache-5124", missedKeyFillsNoBuffer},
	{6, "lmcache-5293", resultsAreCompleteWhenSeen},
	{7, "lmcache-4838", refusedPartOfABatchIsAbsent},
	{8, "lmcache-1175", restartFindsAll},
	{9, "lmcache-1034", lookUpPinsNothing},
	{10, "lmcache-987", cyclesLeakNothing},
	{11, "lmcache-1756", cancelledReadLeavesNoLease},
	{12, "lmcache-3130", evictionUnderAReader},
	{13, "lmcache-418", evictionTimeIsFlat},
	{14, "lmcache-426", blockAndDescriptionGoTogether},
	{15, "lmcache-2136", keysAgreeBetweenProcesses},
	{16, "lmcache-2961", adapterIsInTheKey},
	{19, "vllm-29163", equalHashesAreToldApart},
	{20, "vllm-17045", otherTenantSeesNoTime},
	{21, "vllm-49176", staleHitEndsAsAMiss},
	{22, "vllm-54363", flippedByteIsSeen},
	{23, "vllm-39702", lookUpThenPin},
	{27, "vllm-fs-254", budgetIsKept},
	{28, "mooncake-1374", foundMeansWhole},
	{29, "mooncake-4239", reusedSlotIsRefused},
	{30, "mooncake-3599", probesDoNotStarveEviction},
	{31, "mooncake-1336", restartKeepsOldKeysRight},
	{32, "mooncake-2246", nodesJoinLater},
	{33, "mooncake-1196", nextDaemonFindsTheSame},
	{34, "mooncake-2253", stoppedDaemonUnderLoad},
	{35, "mooncake-1817", failuresAreTold},
	{37, "sglang-27504", halfABlockIsAbsent},
	{38, "sglang-35484", sizesDoNotMix},
	{39, "sglang-31920", modelIsInTheKey},
	{40, "sglang-38577", saltIsInTheKey},
	{42, "sglang-26728", leasedChainIsUntouched},
	{43, "sglang-21624", idleSessionsGiveWay},
	{44, "dynamo-15079", failedLoadIsCounted},
	{45, "dynamo-5012", otherSeedsMiss},
}

func TestComplaint(t *testing.T) {
	for _, c := range complaints {
		t.Run(c.name, c.run)
	}
}

// TestComplaintsAreListed: the table in the documentation names each test, and each of
// the 48 complaints by number.
func TestComplaintsAreListed(t *testing.T) {
	b, err := os.ReadFile("../../docs/complaints.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	for _, c := range complaints {
		if !strings.Contains(text, fmt.Sprintf("| %d | ", c.no)) || !strings.Contains(text, "TestComplaint/"+c.name+"`") {
			t.Errorf("docs/complaints.md does not list %d, %s", c.no, c.name)
		}
	}
	for no := 1; no <= 48; no++ {
		if !strings.Contains(text, fmt.Sprintf("| %d | ", no)) {
			t.Errorf("docs/complaints.md says nothing of complaint %d", no)
		}
	}
}

// The key tests: what decides a block's bytes is in its key.

func specA() kvtier.Spec {
	return kvtier.Spec{
		TenantSalt: "a", ModelDigest: "model", Adapter: "", Engine: "e", EngineVersion: "1",
		Numerics: "f16", Tokenizer: "t", FormatVersion: 1,
	}
}

// specChain is the chain of tokens 1 to 8, two to a block, under a spec.
func specChain(t *testing.T, s kvtier.Spec) []kvtier.Key {
	t.Helper()
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	parent, keys := s.Root(), []kvtier.Key(nil)
	for i := range 4 {
		k, err := kvtier.Chain(parent, i, []int32{int32(2*i + 1), int32(2*i + 2)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		keys, parent = append(keys, k), k
	}
	return keys
}

// neverShare stores the chain of tokens 1 to 8 under one spec and looks it up under
// others, which must not find a block of it.
func neverShare(t *testing.T, change ...func(*kvtier.Spec)) {
	t.Helper()
	dir := shortDir(t)
	d := startDaemon(t, dir, 1<<20)
	c := attach(t, dir, "w")
	first := specChain(t, specA())
	for i, k := range first {
		parent := specA().Root()
		if i > 0 {
			parent = first[i-1]
		}
		mustPut(t, c, kvtier.Block{Key: k, Parent: parent, Index: i})
	}
	if n := c.Match(specChain(t, specA())); n != len(first) {
		t.Fatalf("%d of the first chain are found", n)
	}
	for i, f := range change {
		s := specA()
		f(&s)
		for j, k := range specChain(t, s) {
			if k == first[j] || c.Match([]kvtier.Key{k}) != 0 {
				t.Errorf("spec %d finds block %d of another spec", i, j)
			}
		}
	}
	checkTier(t, d)
}

func layoutIsInTheKey(t *testing.T) {
	neverShare(t, func(s *kvtier.Spec) { s.FormatVersion = 2 }, func(s *kvtier.Spec) { s.EngineVersion = "2" },
		func(s *kvtier.Spec) { s.Numerics = "q8" })
}

func adapterIsInTheKey(t *testing.T) {
	neverShare(t, func(s *kvtier.Spec) { s.Adapter = "lora-a" }, func(s *kvtier.Spec) { s.Adapter = "lora-b" })
	if specChain(t, withAdapter("lora-a"))[0] == specChain(t, withAdapter("lora-b"))[0] {
		t.Error("two adapters have one key")
	}
}

func withAdapter(a string) kvtier.Spec {
	s := specA()
	s.Adapter = a
	return s
}

func modelIsInTheKey(t *testing.T) {
	neverShare(t, func(s *kvtier.Spec) { s.ModelDigest = "other" })
}

// An adapter named like a salt, and the other way round, do not collide.
func saltIsInTheKey(t *testing.T) {
	neverShare(t, func(s *kvtier.Spec) { s.TenantSalt = "b" }, func(s *kvtier.Spec) { s.Adapter = "x" },
		func(s *kvtier.Spec) { s.TenantSalt, s.Adapter = "a"+"x", "" }, func(s *kvtier.Spec) { s.Template = "x" })
}

func otherSeedsMiss(t *testing.T) {
	neverShare(t, func(s *kvtier.Spec) { s.Tokenizer = "another seed" })
}

// The same tokens have the same key in another process, so what it stored is found.
func keysAgreeBetweenProcesses(t *testing.T) {
	dir := shortDir(t)
	startDaemon(t, dir, 1<<20)
	w := startChild(t, "client", dir, "w", 0)
	w.ask("put <nil>", "put a 8")
	if n := attach(t, dir, "r").Match(keysOf(testChain("a", 8))); n != 8 {
		t.Errorf("%d of another process's 8 blocks are found", n)
	}
}

// Keys that agree in all bits that index and fingerprint look at are told apart by
// the rest.
func equalHashesAreToldApart(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir, 1<<20)
	c := attach(t, dir, "w")
	a := testChain("a", 1)[0]
	b := a
	b.Key[31] ^= 1
	mustPut(t, c, a)
	if c.Match([]kvtier.Key{b.Key}) != 0 || len(c.Lease([]kvtier.Key{b.Key})) != 0 {
		t.Error("a key is found under another one of the same hash")
	}
	mustPut(t, c, b)
	refs := append(c.Lease([]kvtier.Key{a.Key}), c.Lease([]kvtier.Key{b.Key})...)
	if len(refs) != 2 || !hasPattern(c.Data(refs[0]), a.Key) || !hasPattern(c.Data(refs[1]), b.Key) {
		t.Error("two keys of one hash do not keep their own bytes")
	}
	c.Release(refs)
	checkTier(t, d)
}
