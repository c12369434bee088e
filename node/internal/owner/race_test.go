//go:build race

package owner

// underRace says that the race detector slows every step down; the model, in one goroutine, has nothing for it to find.
const underRace = true
