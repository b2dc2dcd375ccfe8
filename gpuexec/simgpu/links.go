package simgpu

import (
	"fmt"
	"math"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/schemas/calib"
)

// Links are those of one worker's GPUs, in the direction into the engine. A transfer
// uses one GPU's part of a link, because a sequence lives on one attention rank; those
// that use the same part share it fairly (processor sharing). Copies out of the engine
// go the other way and delay nothing here.
type Links struct {
	later Later
	gpus  int
	links map[string]*link
}

// link is one kind of link of a worker.
type link struct {
	rate  float64 // bytes per nanosecond, of each port
	lat   schemas.Time
	ports []port
	bytes int64 // moved or on their way
}

// port is one GPU's part of a link.
type port struct {
	active []*transfer
	at     schemas.Time // when left was true
	stop   func()       // of the timer for the next end
}

type transfer struct {
	left float64 // bytes
	done func(at schemas.Time)
}

// NewLinks makes the links that a calibration names.
func NewLinks(cal *calib.Calibration, later Later) *Links {
	l := &Links{later: later, gpus: max(cal.Layout.GPUs, 1), links: map[string]*link{}}
	for _, c := range cal.Links {
		l.links[c.Name] = &link{rate: c.GBps, lat: schemas.Time(math.Round(c.LatUS * 1e3)), ports: make([]port, l.gpus)}
	}
	return l
}

// Send moves bytes over one GPU's part of a link, that with the fewest transfers, and
// calls done when they are there. The error says that there is no such link.
func (l *Links) Send(now schemas.Time, name string, bytes int64, done func(at schemas.Time)) error {
	k := l.links[name]
	if k == nil || k.rate <= 0 {
		return fmt.Errorf("simgpu: the calibration has no link %q", name)
	}
	p := &k.ports[0]
	for i := range k.ports {
		if len(k.ports[i].active) < len(p.active) {
			p = &k.ports[i]
		}
	}
	k.bytes += bytes
	k.advance(p, now)
	p.active = append(p.active, &transfer{left: float64(bytes), done: done})
	l.arm(k, p, now)
	return nil
}

// Bytes is how much was sent over a link.
func (l *Links) Bytes(name string) int64 {
	if k := l.links[name]; k != nil {
		return k.bytes
	}
	return 0
}

// advance lets time pass on a port.
func (k *link) advance(p *port, now schemas.Time) {
	if n := len(p.active); n > 0 {
		each := float64(now-p.at) * k.rate / float64(n)
		for _, t := range p.active {
			t.left -= each
		}
	}
	p.at = now
}

// arm sets the timer for the transfer that ends first.
func (l *Links) arm(k *link, p *port, now schemas.Time) {
	if p.stop != nil {
		p.stop()
		p.stop = nil
	}
	if len(p.active) == 0 {
		return
	}
	least := p.active[0].left
	for _, t := range p.active[1:] {
		least = min(least, t.left)
	}
	at := now + schemas.Time(math.Ceil(max(0, least)*float64(len(p.active))/k.rate))
	p.stop = l.later(at, func() {
		p.stop = nil
		l.ended(k, p, at)
	})
}

// ended completes what has come; the fixed cost of a transfer follows its bytes.
func (l *Links) ended(k *link, p *port, now schemas.Time) {
	k.advance(p, now)
	left := p.active[:0]
	for _, t := range p.active {
		if t.left > 1e-3 {
			left = append(left, t)
			continue
		}
		at := now + k.lat
		l.later(at, func() { t.done(at) })
	}
	clear(p.active[len(left):])
	p.active = left
	l.arm(k, p, now)
}
