// Package opscmd holds the commands of the person who runs weir: roles, dead and
// doctor. Each is one file.
package opscmd
