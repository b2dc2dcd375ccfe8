// Package examples runs the programs of docs/examples against a stack, where what they
// need is installed, and cuts their connections while they read.
package examples
