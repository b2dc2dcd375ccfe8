// Package gateway is the OpenAI-compatible HTTP server in front of the turn path.
// It keeps no state of its own: a request becomes a turn, and what the turn
// yields becomes the response.
//
// Read gateway.go first (configuration and routes), then request.go (how a
// request becomes a turn), then respond.go (how the answer goes back). errors.go
// is the table of failures and status codes.
package gateway
