package hostmem

import (
	"strings"
	"testing"
)

func TestHugePageSettings(t *testing.T) {
	const line = "63 43 0:39 / /mnt/kv\\040mem rw,relatime shared:2 - tmpfs tmpfs rw,size=1048576k,huge=within_size"
	m, ok := parseMount(line)
	if !ok || m != (mount{path: "/mnt/kv mem", kind: "tmpfs", option: "within_size"}) {
		t.Fatalf("%+v, %v", m, ok)
	}
	if !m.covers("/mnt/kv mem") || !m.covers("/mnt/kv mem/a") || m.covers("/mnt/kv memory") || !(mount{path: "/"}).covers("/a") {
		t.Error("folders below a mount")
	}
	for _, bad := range []string{"", "63 43", "a b c d e f", "1 2 3 4 /x rw - tmpfs"} {
		if _, ok := parseMount(bad); ok {
			t.Errorf("%q is read", bad)
		}
	}
	for _, tc := range []struct {
		kind, option, machine string
		want                  bool
		why                   string
	}{
		{"tmpfs", "", "always within_size advise [never] deny force", false, "remount"},
		{"tmpfs", "never", "[always] never", false, "remount"},
		{"tmpfs", "within_size", "[never]", true, "huge=within_size"},
		{"tmpfs", "advise", "", true, "background"},
		{"tmpfs", "always", "always [deny] force", false, "denies"},
		{"tmpfs", "", "always deny [force]", true, "forces"},
		{"ext4", "always", "[always]", false, "ext4"},
	} {
		got, why := mount{path: "/m", kind: tc.kind, option: tc.option}.huge(chosen(tc.machine))
		if got != tc.want || !strings.Contains(why, tc.why) {
			t.Errorf("%+v: %v, %q", tc, got, why)
		}
	}
	if _, why := HugePages(shortDir(t) + "/not/there/yet"); why == "" {
		t.Error("nothing is said of this machine")
	}
}

// Large blocks begin at a huge page, small ones waste no memory for it.
func TestLargeBlocksBeginAtAHugePage(t *testing.T) {
	if l := newLayout(4<<20, 10); l.data%hugeBytes != 0 || l.stride%hugeBytes != 0 {
		t.Errorf("%+v", l)
	}
	if l := newLayout(4096, 10); l.data >= hugeBytes {
		t.Errorf("%+v", l)
	}
}
