package retain

// Level is how far a tenant's words are believed.
type Level uint8

// The levels, from none to all.
const (
	LevelLRU   Level = iota // nothing: its branches are ranked by Recency, ends included
	LevelInfer              // what is inferred, not what its agents say
	LevelHints              // what its agents say
)

// Credit learns per tenant whether its hints keep more than LRU would have.
type Credit struct{}

// NewCredit returns a credit for up to tenants tenants, 0 for 4,096.
func NewCredit(tenants int) *Credit { return &Credit{} }

// Resumed says that a branch of tenant went on: of the want blocks that it asks
// for, have are resident, and lru would be under plain LRU (Shadow.Resident).
func (c *Credit) Resumed(now int64, tenant string, have, want, lru int) {}

// Level is how far tenant is believed now.
func (c *Credit) Level(now int64, tenant string) Level { return LevelHints }
