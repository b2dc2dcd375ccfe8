package retain

import "github.com/weir-dev/weir/schemas"

// userSooner tells a wait for a user from one for a tool, in ns: the geometric mean of
// their medians in the recorded coding sessions, 125 s and 9 s.
const userSooner = 33e9

// hear checks what agents say of waits against what came of them. An answer shows by
// itself whether it calls a tool.
func (k *Keeper) hear(now int64, b *branch, c *schemas.BranchChange) {
	switch {
	case c.State == schemas.BranchRunning:
		if b.said != "" {
			k.credit.Said(b.tenant.name, b.said == schemas.BranchEnded ||
				b.said == schemas.BranchUserWaiting && b.shown == schemas.BranchToolWaiting && now-b.answer < userSooner ||
				b.said == schemas.BranchToolWaiting && b.shown == schemas.BranchUserWaiting && now-b.answer > userSooner)
		}
		b.said, b.shown = "", ""
	case c.State == schemas.BranchSuperseded:
	case !c.Inferred:
		b.said = c.State
	case c.State != schemas.BranchEnded:
		b.shown, b.answer = c.State, now
	}
}
