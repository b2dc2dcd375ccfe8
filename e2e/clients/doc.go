// Package clients shows that programs which know nothing of weir work with it
// unchanged: the official openai and anthropic npm packages, OpenAI's agents package
// and LangGraph, which finish a loop of tool calls, and the nats command line.
//
// Read run.go (the four clients), loop.go (how a loop is checked against what lineage
// saw), node.go (how the packages get here) and the programs in npm; the tests say what
// must come out.
package clients
