package simrun

import "github.com/weir-dev/weir/schemas"

// message is what a shared body arrives as. Kinds that never travel between services,
// such as replies to an inbox, are left out.
func (p *packet) message() schemas.Msg {
	m := schemas.Msg{Kind: p.kind, Subject: p.subject}
	switch b := p.shared.(type) {
	case *schemas.Turn:
		m.Turn = b
	case *schemas.Event:
		m.Event = b
	case *schemas.Ready:
		m.Ready = b
	case *schemas.Job:
		m.Job = b
	case *schemas.Done:
		m.Done = b
	case *schemas.Frame:
		m.Frame = b
	case *schemas.Result:
		m.Result = b
	case *schemas.Checkpoint:
		m.Checkpoint = b
	case *schemas.Assignment:
		m.Assignment = b
	case *schemas.Heartbeat:
		m.Heartbeat = b
	case *schemas.Report:
		m.Report = b
	case *schemas.KVNotice:
		m.KV = b
	case *schemas.BranchChange:
		m.Branch = b
	case *schemas.Plan:
		m.Plan = b
	case *schemas.PlannerMode:
		m.Mode = b
	case *schemas.Load:
		m.Load = b
	case *schemas.Dead:
		m.Dead = b
	case *schemas.Lease:
		m.Lease = b
	case *schemas.Cancel:
		m.Cancel = b
	}
	return m
}
