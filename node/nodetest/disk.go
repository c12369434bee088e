package nodetest

import (
	"fmt"
	"sync"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
	raftvfs "github.com/lni/vfs"
)

// A Disk is one node's disk, in memory. What a fault does holds for the state and for the Raft log alike, for the node that
// runs now and for those that are started on it later, until Heal. It is safe for concurrent use.
type Disk struct {
	open openFiles

	gate sync.RWMutex // held shared around each sync, exclusively for a crash, so that both stores crash at one instant

	mu    sync.Mutex // guards the fields below
	state *vfs.MemFS
	log   *raftvfs.MemFS
	keep  bool // a crash loses nothing
	cur   *faults
	hurt  bool // a fault was met that a node may fail of
}

func newDisk() *Disk {
	d := &Disk{state: vfs.NewCrashableMem(), log: raftvfs.NewStrictMem()}
	d.cur = &faults{d: d}
	return d
}

// Stall makes every sync wait until Resume, as a disk does that hangs.
func (d *Disk) Stall() {
	d.faults(func(f *faults) {
		if f.stalled == nil {
			f.stalled = make(chan struct{})
		}
	})
}

// Resume ends Stall.
func (d *Disk) Resume() { d.faults((*faults).resumeLocked) }

// Fail makes every write and sync fail with err from now on; nil ends it. A node does not live on after a failed write: its
// Err says so.
func (d *Disk) Fail(err error) { d.faults(func(f *faults) { f.err = err }) }

// Full makes every write fail with ENOSPC while it is on.
func (d *Disk) Full(on bool) {
	d.faults(func(f *faults) {
		f.full = nil
		if on {
			f.full = fmt.Errorf("write: %w", syscall.ENOSPC)
		}
	})
}

// LoseUnsynced says whether Kill loses what was not synced, as when a machine loses power; that is the default. Without, what was
// written stays, as when only the process dies.
func (d *Disk) LoseUnsynced(on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.keep = !on
}

// Heal ends Stall, Fail and Full.
func (d *Disk) Heal() {
	d.faults(func(f *faults) {
		f.resumeLocked()
		f.err, f.full = nil, nil
	})
}

func (d *Disk) faults(change func(f *faults)) {
	d.mu.Lock()
	f := d.cur
	d.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// hangs says whether the disk is stalled now.
func (d *Disk) hangs() (yes bool) {
	d.faults(func(f *faults) { yes = f.stalled != nil })
	return yes
}

// failed says whether a node may have failed because of this disk.
func (d *Disk) failed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.hurt
}

// mount returns the file systems for a node's start.
func (d *Disk) mount() (vfs.FS, raftvfs.FS) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return &stateFS{FS: d.state, f: d.cur}, raftvfs.Wrap(logFS{d.log, &d.open}, d.cur)
}

// crash makes the disk hold what a machine finds after it lost its power now. What the running node does from here on counts no
// more, and meets no fault, so that it can be closed.
func (d *Disk) crash() {
	d.gate.Lock()
	defer d.gate.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.keep {
		d.state = d.state.CrashClone(vfs.CrashCloneCfg{})
		d.log.SetIgnoreSyncs(true)
	}
	old := d.cur
	old.mu.Lock()
	defer old.mu.Unlock()
	d.cur = &faults{d: d, err: old.err, full: old.full}
	if old.stalled != nil {
		d.cur.stalled = make(chan struct{})
	}
	old.resumeLocked()
	old.err, old.full = nil, nil
}

// settle ends a crash, when the node that ran is closed.
func (d *Disk) settle() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.keep {
		d.log.ResetToSyncedState()
		d.log.SetIgnoreSyncs(false)
	}
}

// wipe makes the disk a new, empty one.
func (d *Disk) wipe() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.state, d.log = vfs.NewCrashableMem(), raftvfs.NewStrictMem()
}

// copyTo makes to a copy of this disk.
func (d *Disk) copyTo(to *Disk) error {
	d.gate.Lock()
	defer d.gate.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	log := raftvfs.NewMem()
	if _, err := raftvfs.Clone(d.log, log, dir, dir); err != nil {
		return fmt.Errorf("copy the Raft log: %w", err)
	}
	state := vfs.NewMem()
	if _, err := vfs.Clone(d.state, state, dir, dir); err != nil {
		return fmt.Errorf("copy the state: %w", err)
	}
	to.mu.Lock()
	defer to.mu.Unlock()
	to.state, to.log, to.keep = state, log, true
	return nil
}

// faults are what is wrong with a disk for one run of a node. They are the injector of the Raft log's file system.
type faults struct {
	d *Disk

	mu        sync.Mutex // guards the fields below
	stalled   chan struct{}
	err, full error
}

func (f *faults) resumeLocked() {
	if f.stalled != nil {
		close(f.stalled)
		f.stalled = nil
	}
}

// write is called before each write.
func (f *faults) write() error {
	f.mu.Lock()
	err := f.err
	if err == nil {
		err = f.full
	}
	f.mu.Unlock()
	return f.met(err)
}

// sync is called before each sync.
func (f *faults) sync() error {
	for {
		f.mu.Lock()
		stalled, err := f.stalled, f.err
		f.mu.Unlock()
		if stalled == nil {
			return f.met(err)
		}
		<-stalled
	}
}

func (f *faults) met(err error) error {
	if err != nil {
		f.d.mu.Lock()
		f.d.hurt = true
		f.d.mu.Unlock()
	}
	return err
}

// MaybeError makes faults an injector of the Raft log's file system.
func (f *faults) MaybeError(op raftvfs.Op) error {
	switch op {
	case raftvfs.OpWrite:
		return f.write()
	case raftvfs.OpSync:
		return f.sync()
	}
	return nil
}
