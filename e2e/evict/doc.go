// Package evict measures what the order of eviction brings on loads of agents, without
// a model: how much of the gap between LRU and the best possible order it closes, which
// of the agents' words that takes, and what it loses when they are wrong.
//
// Read weka.go for recorded sessions, churn.go for generated ones, ablation.go and
// hints.go for what agents say, plot.go for the pictures.
package evict
