package main

import (
	"slices"
	"time"
)

// quantile is the exact order statistic: the smallest value that at least percent of 100 values do not exceed, the smallest of all
// for 0. There must be a value.
func quantile(d []time.Duration, percent int) time.Duration {
	sorted := slices.Sorted(slices.Values(d))
	rank := (len(sorted)*percent + 99) / 100 // rounded up
	return sorted[max(rank, 1)-1]
}
