package retain

// Class is kvtier's class of a branch: idle or waiting.
type Class uint8

// The classes that Score gives.
const (
	ClassIdle    Class = 1
	ClassWaiting Class = 2
)

// Score ranks the waiting branch w: idle when it is not expected back, else
// waiting with a score; of two waiting branches the one with the higher score is
// kept. Scores change with time: ask again every second.
func (e *Estimator) Score(now int64, w *Wait) (Class, float64) { return ClassWaiting, 0 }

// Recency is the score of a branch whose tenant is at LevelLRU: it falls with the
// time since the last use and with nothing else, on the scale of Score.
func (e *Estimator) Recency(now int64, w *Wait) (Class, float64) { return ClassWaiting, 0 }
