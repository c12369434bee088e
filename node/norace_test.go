//go:build !race

package node_test

// underRace is few with the race detector, and n without.
func underRace(n, _ int) int { return n }
