package main

import (
	"testing"
	"time"
)

// TestQuantile: quantiles are measured values, by rank rounded up, in any order of the input, which is left as it was.
func TestQuantile(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(100 - i) // 100 … 1
	}
	for _, c := range []struct {
		d       []time.Duration
		percent int
		want    time.Duration
	}{
		{hundred, 0, 1}, {hundred, 50, 50}, {hundred, 99, 99}, {hundred, 100, 100},
		{hundred[:20], 50, 90}, {hundred[:20], 99, 100},
		{[]time.Duration{7}, 0, 7}, {[]time.Duration{7}, 50, 7}, {[]time.Duration{7}, 99, 7},
		{[]time.Duration{3, 1, 2}, 50, 2}, {[]time.Duration{4, 3, 1, 2}, 50, 2},
	} {
		if got := quantile(c.d, c.percent); got != c.want {
			t.Errorf("quantile %d of %v: got %d, want %d", c.percent, c.d, got, c.want)
		}
	}
	if hundred[0] != 100 {
		t.Error("quantile changed its input")
	}
}
