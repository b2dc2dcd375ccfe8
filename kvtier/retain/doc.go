// Package retain decides which waiting branch keeps its blocks and which gives
// them up: how soon each is expected back, and how far a tenant's words about it
// are believed.
package retain
