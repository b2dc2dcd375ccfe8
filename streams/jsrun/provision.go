package jsrun

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/streams"
)

// MinServer is the oldest server that works: per-message TTL came with 2.11.
const MinServer = "2.11.0"

// JetStream error codes that provisioning tells apart.
const (
	codeNameInUse      = 10058
	codeAccountLimit   = 10002
	codeInsufficient   = 10023
	codeMemoryLimit    = 10028
	codeStorageLimit   = 10047
	codeSubjectOverlap = 10065
	codeStreamBytes    = 10122
)

// Provision makes the streams of a topology. Streams that exist with the same
// settings are left alone; one that exists with others is refused with
// ErrSettings and a list of the differences, because changing limits of a stream
// with data is the operator's decision. The age of a stream is such a decision where
// the topology says that it was chosen: then the stream is changed. Otherwise it
// keeps its age. It may be called at any time, by any number of processes.
func Provision(ctx context.Context, js jetstream.JetStream, topo []streams.Stream) error {
	if err := streams.Check(topo); err != nil {
		return err
	}
	if err := checkServer(ctx, js); err != nil {
		return err
	}
	var bad []string
	for _, s := range topo {
		diff, err := provisionStream(ctx, js, s)
		if err != nil {
			return explainCreate(err, s, topo)
		}
		if len(diff) > 0 {
			bad = append(bad, s.Name+": "+strings.Join(diff, ", "))
		}
	}
	if len(bad) > 0 {
		return fmt.Errorf("%w: %s; start with the limits that the streams have, change them with \"nats stream edit\", or delete the streams named",
			ErrSettings, strings.Join(bad, "; "))
	}
	return nil
}

// checkServer refuses servers that cannot carry weir.
func checkServer(ctx context.Context, js jetstream.JetStream) error {
	nc := js.Conn()
	if v := nc.ConnectedServerVersion(); v != "" && !atLeast(v, MinServer) {
		return fmt.Errorf("%w: %s is version %s, weir needs %s or later", ErrServerTooOld, nc.ConnectedUrlRedacted(), v, MinServer)
	}
	if mp := nc.MaxPayload(); mp > 0 && mp < 1<<20 {
		return fmt.Errorf("%w: max_payload is %d bytes, weir needs 1 MiB or more", ErrNoRoom, mp)
	}
	_, err := js.AccountInfo(ctx)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("%w: the NATS server has JetStream off; start it with -js, or let weir start its own: %w", ErrNoJetStream, err)
	case errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return fmt.Errorf("%w: JetStream is off for this account; enable it in the server's accounts section: %w", ErrNoJetStream, err)
	}
	return fmt.Errorf("jsrun: asking the server about JetStream: %w", err)
}

// atLeast compares dotted versions; a suffix such as -dev counts as the release.
func atLeast(have, want string) bool {
	h, w := versionParts(have), versionParts(want)
	return slices.Compare(h[:], w[:]) >= 0
}

func versionParts(v string) (out [3]int) {
	v, _, _ = strings.Cut(v, "-")
	for i, p := range strings.SplitN(v, ".", 3) {
		out[i], _ = strconv.Atoi(p)
	}
	return out
}

// provisionStream creates a stream, or compares it when it exists.
func provisionStream(ctx context.Context, js jetstream.JetStream, s streams.Stream) ([]string, error) {
	st, err := js.Stream(ctx, s.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if _, err = js.CreateStream(ctx, streamConfig(s, time.Now())); err == nil {
			return nil, nil
		}
		var api *jetstream.APIError
		if !errors.As(err, &api) || api.ErrorCode != codeNameInUse {
			return nil, err
		}
		// Another process was first; what counts is whether it wants the same.
		st, err = js.Stream(ctx, s.Name)
	}
	if err != nil {
		return nil, err
	}
	have, err := retain(ctx, js, s, st.CachedInfo().Config)
	if err != nil {
		return nil, err
	}
	s.MaxAge = have.MaxAge
	return differences(streamConfig(s, time.Time{}), have), nil
}

// retain gives a stream that exists the age that was chosen for it. What is older
// then goes at once.
func retain(ctx context.Context, js jetstream.JetStream, s streams.Stream, have jetstream.StreamConfig) (jetstream.StreamConfig, error) {
	if !s.AgeFixed || s.MaxAge == have.MaxAge {
		return have, nil
	}
	want := have
	want.MaxAge, want.Duplicates = s.MaxAge, window(s)
	st, err := js.UpdateStream(ctx, want)
	if err != nil {
		return have, fmt.Errorf("changing max_age from %s to %s: %w", have.MaxAge, want.MaxAge, err)
	}
	return st.CachedInfo().Config, nil
}

// window is the duplicate window: the server refuses one that exceeds the age.
func window(s streams.Stream) time.Duration {
	if s.MaxAge > 0 {
		return min(s.Duplicates, s.MaxAge)
	}
	return s.Duplicates
}

// streamConfig turns plain data into the client's type. Memory streams start at
// a sequence made from the time, in microseconds: when NATS restarts and they
// are made again, sequences go on growing, so epochs and "after the last one I
// saw" keep their meaning.
func streamConfig(s streams.Stream, now time.Time) jetstream.StreamConfig {
	c := jetstream.StreamConfig{
		Name: s.Name, Description: "weir: see streams/table.go", Subjects: s.Subjects,
		MaxAge: s.MaxAge, MaxBytes: s.MaxBytes, MaxMsgs: s.MaxMsgs, MaxMsgsPerSubject: s.MaxMsgsPerSubject,
		MaxMsgSize: s.MaxMsgSize, MaxConsumers: s.MaxConsumers, Duplicates: window(s), Replicas: s.Replicas,
		AllowDirect: s.AllowDirect, AllowMsgTTL: s.AllowMsgTTL,
		Storage: jetstream.FileStorage, Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardNew,
		AllowRollup: s.Name == streams.PayloadStream,
	}
	if s.Store == streams.Memory {
		c.Storage = jetstream.MemoryStorage
		if !now.IsZero() {
			c.FirstSeq = uint64(now.UnixMicro())
		}
	}
	if s.Retention == streams.WorkQueue {
		c.Retention = jetstream.WorkQueuePolicy
	}
	if s.Discard == streams.DiscardOld {
		c.Discard = jetstream.DiscardOld
	}
	if t := s.Transform; t != nil {
		c.SubjectTransform = &jetstream.SubjectTransformConfig{Source: t.Source, Destination: t.Destination}
	}
	return c
}

// differences lists the settings in which have is not what weir wants.
func differences(want, have jetstream.StreamConfig) []string {
	var out []string
	add := func(field string, w, h any) {
		if ws, hs := fmt.Sprint(w), fmt.Sprint(h); ws != hs {
			out = append(out, fmt.Sprintf("%s is %s, wanted %s", field, hs, ws))
		}
	}
	transform := func(t *jetstream.SubjectTransformConfig) string {
		if t == nil {
			return "none"
		}
		return t.Source + " to " + t.Destination
	}
	ws, hs := slices.Sorted(slices.Values(want.Subjects)), slices.Sorted(slices.Values(have.Subjects))
	add("subjects", ws, hs)
	add("storage", want.Storage, have.Storage)
	add("retention", want.Retention, have.Retention)
	add("discard", want.Discard, have.Discard)
	add("max_bytes", want.MaxBytes, have.MaxBytes)
	add("max_msgs", want.MaxMsgs, have.MaxMsgs)
	add("max_msgs_per_subject", want.MaxMsgsPerSubject, have.MaxMsgsPerSubject)
	add("max_msg_size", want.MaxMsgSize, have.MaxMsgSize)
	add("max_consumers", want.MaxConsumers, have.MaxConsumers)
	add("duplicate_window", want.Duplicates, have.Duplicates)
	add("num_replicas", want.Replicas, have.Replicas)
	add("allow_direct", want.AllowDirect, have.AllowDirect)
	add("allow_msg_ttl", want.AllowMsgTTL, have.AllowMsgTTL)
	add("allow_rollup_hdrs", want.AllowRollup, have.AllowRollup)
	add("subject_transform", transform(want.SubjectTransform), transform(have.SubjectTransform))
	return out
}

// explainCreate says what to do about a stream that could not be made.
func explainCreate(err error, s streams.Stream, topo []streams.Stream) error {
	var api *jetstream.APIError
	if !errors.As(err, &api) {
		return fmt.Errorf("jsrun: creating stream %s: %w", s.Name, err)
	}
	switch api.ErrorCode {
	case codeAccountLimit, codeInsufficient, codeMemoryLimit, codeStorageLimit, codeStreamBytes:
		file, mem := streams.Totals(topo)
		return fmt.Errorf("%w: stream %s does not fit (%s): all streams together need %d MiB of file and %d MiB of memory storage; raise the limits of the server or account, or shrink the streams",
			ErrNoRoom, s.Name, api.Description, file>>20, mem>>20)
	case codeSubjectOverlap:
		return fmt.Errorf("%w: the subjects %v of %s are taken by another stream of this account: %w", ErrSettings, s.Subjects, s.Name, err)
	}
	return fmt.Errorf("jsrun: creating stream %s: %w", s.Name, err)
}
