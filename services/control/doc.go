// Package control runs the services that decide: lineage, router and tokenizer,
// each on its own or all in one process.
//
// Read targets.go first: it lists the services and what each needs.
package control
