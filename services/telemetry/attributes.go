package telemetry

import (
	"strings"

	"go.opentelemetry.io/otel/attribute"

	"github.com/weir-dev/weir/schemas"
)

// Attribute keys of the messaging conventions v1.45 and of the GenAI conventions
// v0.1. They are strings here because the Go packages of the conventions have
// dropped the GenAI ones.
const (
	keySystem      = attribute.Key("messaging.system")
	keyOpType      = attribute.Key("messaging.operation.type")
	keyOpName      = attribute.Key("messaging.operation.name")
	keyDestination = attribute.Key("messaging.destination.name")
	keyTemplate    = attribute.Key("messaging.destination.template")
	keyMessageID   = attribute.Key("messaging.message.id")
	keyBodySize    = attribute.Key("messaging.message.body.size")

	keyGenOp        = attribute.Key("gen_ai.operation.name")
	keyProvider     = attribute.Key("gen_ai.provider.name")
	keyModel        = attribute.Key("gen_ai.request.model")
	keyConversation = attribute.Key("gen_ai.conversation.id")
	keyInput        = attribute.Key("gen_ai.usage.input_tokens")
	keyOutput       = attribute.Key("gen_ai.usage.output_tokens")
	keyCached       = attribute.Key("gen_ai.usage.cache_read.input_tokens")
	keyFinish       = attribute.Key("gen_ai.response.finish_reasons")

	keyErrorType  = attribute.Key("error.type")
	keyHTTPStatus = attribute.Key("http.response.status_code")
	keyHTTPRoute  = attribute.Key("http.route")
	keyHTTPMethod = attribute.Key("http.request.method")
	keyStreamSeq  = attribute.Key("nats.stream.sequence")
)

// Keys of weir itself.
const (
	keyJob       = attribute.Key("weir.job")
	keyTenant    = attribute.Key("weir.tenant")
	keyTurn      = attribute.Key("weir.turn")
	keyBranch    = attribute.Key("weir.branch")
	keyStage     = attribute.Key("weir.stage")
	keyAttempt   = attribute.Key("weir.attempt")
	keyExecutor  = attribute.Key("weir.executor")
	keyOutcome   = attribute.Key("weir.outcome")
	keyTokens    = attribute.Key("weir.tokens")    // worked on in this span
	keyOps       = attribute.Key("weir.ops")       // engine operations
	keyBusyNS    = attribute.Key("weir.busy_ns")   // engine time
	keyShared    = attribute.Key("weir.rows_max")  // most turns in one engine operation
	keyFound     = attribute.Key("weir.cached")    // prompt tokens found in the tier
	keyMissing   = attribute.Key("weir.missing")   // blocks still to be computed
	keySealed    = attribute.Key("weir.sealed")    // blocks
	keySkipped   = attribute.Key("weir.skipped")   // blocks the tier had no room for
	keyTTFTNS    = attribute.Key("weir.ttft_ns")   // admission to first token
	keyDelivered = attribute.Key("weir.delivered") // tokens that an attempt is forced along
	keyPrompt    = attribute.Key("weir.prompt_tokens")
	keyUncached  = attribute.Key("weir.unknown_tokens") // prompt tokens lineage did not know
)

const (
	systemNATS   = "nats"
	providerWeir = "weir"
)

// templates are the subjects of low cardinality that name spans.
var templates = map[schemas.Root]string{
	schemas.RootAgent:   "agent.{tenant}.{session}.turn",
	schemas.RootReady:   "ready.{cell}.{tenant}.{session}.{turn}",
	schemas.RootPrefill: "prefill.{cell}.{executor}.{job}",
	schemas.RootDecode:  "decode.{cell}.{executor}.{job}",
	schemas.RootDone:    "done.{cell}.{job}",
	schemas.RootResult:  "result.{tenant}.{session}.{turn}",
}

// templateOf names the kind of subject; unknown ones are named by their first token.
func templateOf(subject string) string {
	if strings.HasPrefix(subject, schemas.TokenizeService+".") {
		return schemas.TokenizeService + ".{model}"
	}
	root, _, _ := strings.Cut(subject, ".")
	if t, ok := templates[schemas.Root(root)]; ok {
		return t
	}
	return root
}
