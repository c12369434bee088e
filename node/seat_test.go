package node

import (
	"math"
	"testing"
)

// A shard moves to a better seat, and among equal ones only where it causes no move back.
func TestChoose(t *testing.T) {
	idle, full := seat{}, seat{runs: true}
	free := func(room int) seat { return seat{runs: true, room: room} }
	here := free(math.MaxInt) // the owner runs for the shard
	for name, c := range map[string]struct {
		seats []seat // of a, b, c
		self  string
		want  string
	}{
		"ThePreferredOne":              {[]seat{idle, idle, idle}, "b", "a"},
		"ThePreferredOneIsHere":        {[]seat{idle, idle, idle}, "a", "a"},
		"WhereOwnRuns":                 {[]seat{idle, idle, free(5)}, "a", "c"},
		"WhereOwnRunsAndIsFull":        {[]seat{idle, full, idle}, "a", "b"},
		"WhereThereIsRoom":             {[]seat{full, full, free(1)}, "a", "c"},
		"ThePreferredOfThoseWithRoom":  {[]seat{full, free(1), free(2)}, "a", "b"},
		"NotFromFullToFull":            {[]seat{full, full, idle}, "b", "b"},
		"NotFromRunningToFull":         {[]seat{full, here, free(9)}, "b", "b"},
		"NotIntoTheLastPlace":          {[]seat{free(1), here, idle}, "b", "b"},
		"ToThePreferredWithMoreRoom":   {[]seat{free(2), here, idle}, "b", "a"},
		"NotToALessPreferred":          {[]seat{here, free(9), free(9)}, "a", "a"},
		"LeavingPrefersRoom":           {[]seat{full, idle, free(1)}, "", "c"},
		"LeavingTakesAFullOne":         {[]seat{idle, full, idle}, "", "b"},
		"LeavingTakesAnyone":           {[]seat{idle, idle, idle}, "", "a"},
		"LeavingTakesThePreferredFree": {[]seat{free(1), free(9), idle}, "", "a"},
		"Nobody":                       {nil, "", ""},
	} {
		for i := range c.seats {
			c.seats[i].node = string(rune('a' + i))
		}
		if got := choose(c.seats, c.self); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
