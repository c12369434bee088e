//go:build !race

package owner

// underRace: see race_test.go.
const underRace = false
