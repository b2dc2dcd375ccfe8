// Package conform is the suite that every runner of actors passes: streams/jsrun
// on JetStream and streams/simrun on a virtual clock. An actor that works on one
// works on the other as far as this suite reaches, so what a runner promises
// belongs here.
//
// Read world.go for what a runner's test must offer, then suite.go for the cases.
package conform
