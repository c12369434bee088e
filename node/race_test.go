//go:build race

package node_test

// underRace is few with the race detector, under which Pebble checks itself too and large data take minutes, and n without.
func underRace(_, few int) int { return few }
