// Package infer measures how well package kvtier/branch tells what agents do from
// plain traffic: precision and recall for each kind of event, on recorded traces
// and, where no trace has labels, on generated sessions. docs/inference.md says
// what the labels are and where they come from.
//
// Read run.go for what is measured, weka.go for the traces with block ids,
// label.go for the labels that hindsight gives, and agents.go for traces of
// messages.
package infer
