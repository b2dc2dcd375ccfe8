// Package gateway is the HTTP server in front of the turn path. It keeps no state
// of its own: a request becomes a turn, and what the turn yields becomes the
// response.
//
// Read gateway.go first (configuration and routes), then dialect.go (what differs
// from API to API), then request.go and place.go (how a request becomes a turn of
// a session), then respond.go (how the answer goes back). errors.go is the table
// of failures and status codes.
package gateway
