package fsm

import (
	"slices"
	"sort"
)

// blockLen is about half of the longest block of an ordered.
const blockLen = 256

// ordered keeps locks in the order of their keys, in blocks, so that a page of them is found without looking at the others and none costs
// more than a move within one block to enter.
type ordered struct{ blocks [][]*lock }

// find is the place of the first lock whose key is k or greater.
func (o *ordered) find(k lockKey) (block, at int) {
	block = sort.Search(len(o.blocks), func(i int) bool {
		b := o.blocks[i]
		return b[len(b)-1].key.compare(k) >= 0
	})
	if block == len(o.blocks) {
		return block, 0
	}
	at, _ = slices.BinarySearchFunc(o.blocks[block], k, func(l *lock, k lockKey) int { return l.key.compare(k) })
	return block, at
}

// add enters a lock that is not in it.
func (o *ordered) add(l *lock) {
	i, at := o.find(l.key)
	if i == len(o.blocks) {
		if i == 0 {
			o.blocks = append(o.blocks, nil)
		}
		i = len(o.blocks) - 1
		at = len(o.blocks[i])
	}
	b := slices.Insert(o.blocks[i], at, l)
	if len(b) > 2*blockLen {
		o.blocks = slices.Insert(o.blocks, i+1, slices.Clone(b[blockLen:]))
		clear(b[blockLen:])
		b = b[:blockLen]
	}
	o.blocks[i] = b
}

// remove drops a lock that is in it.
func (o *ordered) remove(l *lock) {
	i, at := o.find(l.key)
	if o.blocks[i] = slices.Delete(o.blocks[i], at, at+1); len(o.blocks[i]) == 0 {
		o.blocks = slices.Delete(o.blocks, i, i+1)
	}
}

// from yields the locks whose keys are k or greater, in order.
func (o *ordered) from(k lockKey) func(yield func(*lock) bool) {
	return func(yield func(*lock) bool) {
		i, at := o.find(k)
		for ; i < len(o.blocks); i, at = i+1, 0 {
			for _, l := range o.blocks[i][at:] {
				if !yield(l) {
					return
				}
			}
		}
	}
}
