// Package sim runs a whole cell of weir on a virtual clock: the router, the executors
// and the planner that ship, on streams/simrun, with devices that take the modelled
// time (gpuexec/simgpu).
//
// Read scenario.go and workload.go first (what is simulated), then system.go (what is
// compared), world.go (how it is put together), front.go and memory.go (the parts that
// stand in for others), figures.go and invariants.go (what comes out).
//
//	fake front --READY--> router --jobs--> executors (simgpu) --RESULT--> fake front
//	   |                    ^ DONE, HB, KV      |  Have, Seal, Use
//	   +-- branch states ---|----> memory <-----+
//	                        planner: reports, load --> ROLE
//
// Shipped code: the router, the executor with its role machine, the planner or the
// baseline, the retention estimator, the bus's rules (simrun). Stood in for: agents,
// gateway and lineage by the fake front, engine and KV by simgpu, the tier's memory by
// memory.go at the grain of one context.
//
// What a run cannot show: rendering, tokenizing, HTTP and client latency; what lineage
// does when a text does not repeat exactly; damage of KV bytes; costs of the bus beyond
// a delay per message; one context's blocks scattered by eviction (a context loses its
// blocks from its end on).
package sim
