package badinput

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/weir-dev/weir/schemas"
)

// Service sends bad requests to the NATS services, as `nats req` does. Each must be
// answered with an error that has a code and a text.
func Service(ctx context.Context, b *Bus, model string) []error {
	var errs []error
	for _, c := range []struct {
		subject string
		body    []byte
		header  nats.Header
		says    string // "" for a good answer
	}{
		{schemas.TurnService, chat("")(), nil, ""},
		{schemas.TurnService, nil, nil, "EOF"},
		{schemas.TurnService, []byte("{"), nil, "EOF"},
		{schemas.TurnService, []byte("\xff"), nil, "UTF-8"},
		{schemas.TurnService, chat(`,"model":"gpt-17"`)(), nil, "gpt-17"},
		{schemas.TurnService, chat(`,"temperature":-1`)(), nil, "temperature"},
		{schemas.TurnService, chat("")(), nats.Header{"Weir-Session": {"a.b"}}, "session"},
		{schemas.TurnService, chat("")(), nats.Header{"Weir-Tenant": {"*"}}, "tenant"},
		{schemas.TurnService, tokens(200_000, 1), nil, "context"},
		{schemas.TokenizeService + "." + model, []byte("[]"), nil, "array"},
		{schemas.TokenizeService + "." + model, []byte(`{"v":1,"messages":[5]}`), nil, "object"},
		{schemas.TokenizeService + "." + model, []byte(`{"v":9}`), nil, "version 9"},
	} {
		try, cancel := context.WithTimeout(ctx, 20*time.Second)
		m, err := b.NC.RequestMsgWithContext(try, &nats.Msg{Subject: c.subject, Data: c.body, Header: c.header})
		cancel()
		if err != nil {
			errs = append(errs, fmt.Errorf("%s %.60q: %w", c.subject, c.body, err))
			continue
		}
		code, text := m.Header.Get(micro.ErrorCodeHeader), m.Header.Get(micro.ErrorHeader)
		if c.subject != schemas.TurnService {
			var r schemas.RenderReply
			if err := schemas.Decode(m.Data, &r); err != nil || r.Failure == nil {
				errs = append(errs, fmt.Errorf("%s %.60q: the answer is %.200s: %w", c.subject, c.body, m.Data, err))
				continue
			}
			code, text = r.Failure.Code, r.Failure.Message
		}
		if (code == "") != (c.says == "") || !strings.Contains(text, c.says) {
			errs = append(errs, fmt.Errorf("%s %.60q: code %q, text %q, want %q", c.subject, c.body, code, text, c.says))
		}
	}
	return errs
}
