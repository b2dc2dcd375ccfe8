package jsrun

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// ConnectOptions says how to reach NATS.
type ConnectOptions struct {
	// Server, when set, is reached inside the process; URL is ignored.
	Server *server.Server
	URL    string
	// Name shows in the server's connection list.
	Name   string
	Creds  string // credentials file, empty for none
	Logger *slog.Logger
}

// Connect opens a connection that tries again for ever: a service outlives its
// NATS. It fails at once when NATS cannot be reached the first time.
func Connect(o ConnectOptions) (*nats.Conn, error) {
	log := o.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	opts := []nats.Option{
		nats.Name(o.Name),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(100 * time.Millisecond),
		nats.ReconnectJitter(50*time.Millisecond, 50*time.Millisecond),
		nats.Timeout(5 * time.Second),
		nats.PingInterval(5 * time.Second), nats.MaxPingsOutstanding(2),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				log.Warn("NATS connection lost", "name", o.Name, "error", err)
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			log.Info("NATS connection is back", "name", o.Name, "url", nc.ConnectedUrlRedacted())
		}),
		nats.ErrorHandler(func(_ *nats.Conn, s *nats.Subscription, err error) {
			subject := ""
			if s != nil {
				subject = s.Subject
			}
			log.Warn("NATS reports an error", "name", o.Name, "subject", subject, "error", err)
		}),
	}
	if o.Creds != "" {
		opts = append(opts, nats.UserCredentials(o.Creds))
	}
	url := o.URL
	if o.Server != nil {
		url = ""
		opts = append(opts, nats.InProcessServer(o.Server))
	}
	nc, err := nats.Connect(url, opts...)
	if err != nil {
		return nil, fmt.Errorf("jsrun: connecting to NATS at %q: %w", o.URL, err)
	}
	return nc, nil
}
