package hostmem

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// adviseHuge asks for huge pages in a mapping: a copy then misses the address cache
// once per 2 MiB instead of once per 4 KiB. Where they are not allowed the kernel
// refuses, and nothing else changes.
func adviseHuge(mem []byte) { _ = unix.Madvise(mem, unix.MADV_HUGEPAGE) }

// HugePages says whether memory that is made in dir, or the nearest folder above that
// exists, lies in huge pages, and what decides it.
func HugePages(dir string) (inUse bool, why string) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return false, err.Error()
	}
	for !exists(abs) && abs != filepath.Dir(abs) {
		abs = filepath.Dir(abs)
	}
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return false, err.Error()
	}
	defer mounts.Close()
	var m mount
	lines := bufio.NewScanner(mounts)
	for lines.Scan() {
		if at, ok := parseMount(lines.Text()); ok && at.covers(abs) && len(at.path) >= len(m.path) {
			m = at // the last one of a path is on top
		}
	}
	all, _ := os.ReadFile("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
	return m.huge(chosen(string(all)))
}

// mount is what /proc/self/mountinfo says of one.
type mount struct{ path, kind, option string }

// parseMount reads a line as proc_pid_mountinfo(5) describes it: the mount point is the
// fifth field; behind a dash come the kind, the source, and the options of the file
// system.
func parseMount(line string) (m mount, ok bool) {
	before, after, ok := strings.Cut(line, " - ")
	f, g := strings.Fields(before), strings.Fields(after)
	if !ok || len(f) < 5 || len(g) < 3 {
		return mount{}, false
	}
	m = mount{path: strings.NewReplacer(`\040`, " ", `\011`, "\t", `\134`, `\`).Replace(f[4]), kind: g[0]}
	for _, o := range strings.Split(g[2], ",") {
		if v, found := strings.CutPrefix(o, "huge="); found {
			m.option = v
		}
	}
	return m, true
}

func (m mount) covers(path string) bool {
	return path == m.path || strings.HasPrefix(path, strings.TrimSuffix(m.path, "/")+"/")
}

// chosen is the word in brackets of a setting such as "always [never] force".
func chosen(setting string) string {
	_, rest, _ := strings.Cut(setting, "[")
	word, _, _ := strings.Cut(rest, "]")
	return word
}

// huge applies the kernel's rules for tmpfs (Documentation/admin-guide/mm/transhuge.rst):
// the option of the mount decides, unless the machine's setting is deny or force.
func (m mount) huge(machine string) (inUse bool, why string) {
	switch {
	case m.kind != "tmpfs":
		return false, fmt.Sprintf("%s is %s, only tmpfs has them", m.path, m.kind)
	case machine == "deny":
		return false, "this machine denies them to all tmpfs (shmem_enabled)"
	case machine == "force":
		return true, "this machine forces them on all tmpfs (shmem_enabled)"
	case m.option == "always" || m.option == "within_size":
		return true, fmt.Sprintf("%s is mounted with huge=%s", m.path, m.option)
	case m.option == "advise":
		return true, fmt.Sprintf("%s is mounted with huge=advise: the kernel merges pages in the background", m.path)
	default:
		return false, fmt.Sprintf("%s is mounted without them; mount -o remount,huge=within_size %s to use them", m.path, m.path)
	}
}
