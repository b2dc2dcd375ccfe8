// Package telemetry makes spans and metrics of the services. Actors know nothing
// of it: spans begin and end in the hooks of streams/jsrun, which see every
// message before and after an actor, and in services.
//
// Read telemetry.go first (what is exported where, sampling), then hops.go (how a
// span crosses processes), then lineage.go, router.go, executor.go and caller.go
// (one per service), and metrics.go for Prometheus.
//
//	chat M                                gateway, SERVER
//	  send agent.{…}.turn                 gateway, PRODUCER
//	    process agent.{…}.turn            lineage, CONSUMER
//	      render
//	      send ready.{…}                  lineage, PRODUCER
//	        process ready.{…}             router, CONSUMER: wait and placement
//	          send prefill.{…}            router, PRODUCER
//	            process prefill.{…}       executor, CONSUMER
//	              open, prefill, seal
//	              send decode.{…}         executor, PRODUCER (or the router)
//	                process decode.{…}    executor, CONSUMER; event first_token
//	                  open, prefill, decode, seal
//	                  send result.{…}     executor, PRODUCER
//	                    process result.{…} lineage, CONSUMER
//
// A turn that is not sampled costs one look at the last byte of its traceparent
// per hook. Spans hold ids, counts and times, never text or tokens.
package telemetry
