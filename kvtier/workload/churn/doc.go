// Package churn generates what public traces of agents lack: contexts that are
// replaced by summaries often, sub-agents that come and go, forks and retries, tools
// whose times have heavy tails, users who pause, reasoning and screenshots that the
// next prompt leaves out, and several tenants. The result is a workload.Schedule whose
// agents say what they do.
//
// Read params.go for the parameters and where each comes from, session.go for one
// session, generate.go for how sessions become a schedule.
package churn
