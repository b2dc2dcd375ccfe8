package telemetry

import (
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-dev/weir/streams/jsrun"
)

// Runner shows the counters of a service's runner.
func (m *Metrics) Runner(service string, s *jsrun.Stats) { m.runners.set(service, s) }

// Conn shows the state of a service's connection to NATS.
func (m *Metrics) Conn(service string, nc *nats.Conn) { m.conns.set(service, nc) }

// runners collects jsrun's Stats by service.
type runners struct {
	named[*jsrun.Stats]
	in, out, inputs, publishes, dropped, repeated, recreated, snapshots, inbox, inflight, held *prometheus.Desc
}

func newRunners() *runners {
	return &runners{
		in:        desc("bus_messages_in_total", "Messages handed to the actor.", "service"),
		out:       desc("bus_messages_out_total", "Messages published, repeats not counted.", "service"),
		inputs:    desc("bus_inputs_settled_total", "Inputs acknowledged (ack), or given back because a publish failed (nak).", "service", "how"),
		publishes: desc("bus_publish_events_total", "Publishes sent again, refused by their expected sequence, given up, or written as dead letters.", "service", "event"),
		dropped:   desc("bus_core_dropped_total", "Unstored messages that could not be sent.", "service"),
		repeated:  desc("bus_inputs_repeated_total", "Inputs that came again while in hand.", "service"),
		recreated: desc("bus_consumers_recreated_total", "Consumers made again.", "service"),
		snapshots: desc("bus_snapshots_total", "Snapshots of the actor written.", "service"),
		inbox:     desc("bus_inbox", "Inputs that wait for the actor.", "service"),
		inflight:  desc("bus_publishes_in_flight", "Publishes without an acknowledgement.", "service"),
		held:      desc("bus_inputs_held", "Inputs delivered and not acknowledged.", "service"),
	}
}

// Describe sends nothing: what there is depends on the services that run here.
func (r *runners) Describe(chan<- *prometheus.Desc) {}

// Collect reads the counters.
func (r *runners) Collect(ch chan<- prometheus.Metric) {
	r.each(func(service string, s *jsrun.Stats) {
		counter(ch, r.in, s.In.Load(), service)
		counter(ch, r.out, s.Out.Load(), service)
		counter(ch, r.inputs, s.Acked.Load(), service, "ack")
		counter(ch, r.inputs, s.Naked.Load(), service, "nak")
		counter(ch, r.publishes, s.Retried.Load(), service, "repeated")
		counter(ch, r.publishes, s.Conflicts.Load(), service, "conflict")
		counter(ch, r.publishes, s.Failed.Load(), service, "given_up")
		counter(ch, r.publishes, s.Dead.Load(), service, "dead_letter")
		counter(ch, r.dropped, s.Dropped.Load(), service)
		counter(ch, r.repeated, s.Repeated.Load(), service)
		counter(ch, r.recreated, s.Recreated.Load(), service)
		counter(ch, r.snapshots, s.Snapshots.Load(), service)
		gauge(ch, r.inbox, float64(s.Inbox.Load()), service)
		gauge(ch, r.inflight, float64(s.Inflight.Load()), service)
		gauge(ch, r.held, float64(s.Held.Load()), service)
	})
}

// conns collects the state of NATS connections by service.
type conns struct {
	named[*nats.Conn]
	up, reconnects, messages, bytes *prometheus.Desc
}

func newConns() *conns {
	return &conns{
		up:         desc("nats_connected", "1 while the service is connected to NATS.", "service"),
		reconnects: desc("nats_reconnects_total", "Connections made again.", "service"),
		messages:   desc("nats_messages_total", "Messages on the connection.", "service", "direction"),
		bytes:      desc("nats_bytes_total", "Bytes of payload on the connection.", "service", "direction"),
	}
}

// Describe sends nothing, see runners.
func (c *conns) Describe(chan<- *prometheus.Desc) {}

// Collect reads the state.
func (c *conns) Collect(ch chan<- prometheus.Metric) {
	c.each(func(service string, nc *nats.Conn) {
		up := 0.0
		if nc.IsConnected() {
			up = 1
		}
		s := nc.Stats()
		gauge(ch, c.up, up, service)
		counter(ch, c.reconnects, s.Reconnects, service)
		counter(ch, c.messages, s.InMsgs, service, "in")
		counter(ch, c.messages, s.OutMsgs, service, "out")
		counter(ch, c.bytes, s.InBytes, service, "in")
		counter(ch, c.bytes, s.OutBytes, service, "out")
	})
}
