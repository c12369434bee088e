package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/oarlock/oarlock/node/internal/env"
	"github.com/oarlock/oarlock/node/internal/wire"
)

const (
	dirFormat    = 1 // of the directory's layout and of node.json
	identityFile = "node.json"
	lockFile     = "LOCK"
	copiedFile   = "COPIED"         // there: the directory is one of two copies and not to be started
	addrsFile    = "addresses.json" // see addresses
	stateDir     = "state"
	raftDir      = "raft"
)

// identity is who this node is: what node.json in its directory says. Addresses are no part of it.
type identity struct {
	Format      uint32          `json:"format"`
	ID          string          `json:"id"`
	Incarnation uint64          `json:"incarnation"`
	BootID      string          `json:"boot_id"`           // of the machine, at the last start
	Plan        json.RawMessage `json:"plan,omitempty"`    // the founding plan, stored or founded
	Founded     bool            `json:"founded"`           // the plan is that of this node's cluster
	Refused     []string        `json:"refused,omitempty"` // plans that this node will never store
	Started     bool            `json:"started"`           // replicas ran here: their data must be there
	Newest      uint32          `json:"newest"`            // the newest cluster format version that was in use here
}

// home is the node's directory, locked.
type home struct {
	fs       vfs.FS
	dir      string
	lock     io.Closer
	id       identity
	plan     *wire.Plan // decoded from id.Plan, nil if there is none
	sameBoot bool       // the former incarnation ran on this boot of this machine: it is dead
}

// openHome makes or opens the directory, locks it and begins a new incarnation.
func openHome(e *env.Env, dir string, maxFormat uint32) (*home, error) {
	h := &home{fs: e.FS, dir: dir}
	if err := makeDir(h.fs, dir); err != nil {
		return nil, fmt.Errorf("%w: Config.Dir = %q: make it or give another: %w", ErrInvalid, dir, err)
	}
	lock, err := h.fs.Lock(h.path(lockFile))
	if err != nil {
		var pe *fs.PathError
		if errors.As(err, &pe) {
			return nil, fmt.Errorf("%w: Config.Dir = %q: make it writable or give another: %w", ErrInvalid, dir, err)
		}
		return nil, fmt.Errorf("%w: Config.Dir = %q: stop the other process or give each node a directory of its own: %w", ErrDirLocked, dir, err)
	}
	h.lock = lock
	if err := h.begin(e, maxFormat); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return h, nil
}

// makeDir makes dir and the parents that it lacks, and returns when their names are on disk: else a crash could take the directory,
// and what this node promised, away as a whole.
func makeDir(disk vfs.FS, dir string) error {
	synced := []string{disk.PathDir(dir)} // also if dir exists: an earlier start may have been cut short
	for p := disk.PathDir(dir); disk.PathDir(p) != p; p = disk.PathDir(p) {
		if _, err := disk.Stat(p); err == nil {
			break
		}
		synced = append(synced, disk.PathDir(p))
	}
	if err := disk.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, p := range synced {
		d, err := disk.OpenDir(p)
		if err != nil {
			if errors.Is(err, fs.ErrPermission) {
				continue // it is not this process's, so neither is its entry
			}
			return fmt.Errorf("open %s: %w", p, err)
		}
		if err := errors.Join(d.Sync(), d.Close()); err != nil {
			return fmt.Errorf("sync %s: %w", p, err)
		}
	}
	return nil
}

func (h *home) begin(e *env.Env, maxFormat uint32) error {
	switch err := h.load(); {
	case errors.Is(err, fs.ErrNotExist):
		if err := h.checkEmpty(); err != nil {
			return err
		}
		h.id = identity{Format: dirFormat, ID: uuid.NewString()}
	case err != nil:
		return err
	case h.id.Format > dirFormat:
		return fmt.Errorf("%w: Config.Dir = %q has layout %d and this binary knows up to %d: run the newer binary", ErrInvalid, h.dir, h.id.Format, dirFormat)
	case h.id.Newest > maxFormat:
		return fmt.Errorf("%w: Config.Dir = %q was in use at cluster format version %d and this binary speaks up to %d: run the newer binary", ErrInvalid, h.dir, h.id.Newest, maxFormat)
	}
	if _, err := h.fs.Stat(h.path(copiedFile)); err == nil {
		return fmt.Errorf("%w: Config.Dir = %q was found to be one of two copies: delete it to start as a new node, or, if it is the one to keep, see that the "+
			"other is gone and delete the file %s in it", ErrDirLocked, h.dir, copiedFile)
	}
	h.sameBoot = h.id.BootID != "" && h.id.BootID == e.BootID
	h.id.Incarnation++
	h.id.BootID = e.BootID
	if err := h.save(); err != nil {
		return fmt.Errorf("write to Config.Dir = %q: make it writable and see that it has room: %w", h.dir, err)
	}
	return nil
}

// checkEmpty refuses to take a directory without node.json that has a node's data: its identity is lost, and starting its
// replicas under a new one would forget what they voted for.
func (h *home) checkEmpty() error {
	names, err := h.fs.List(h.dir)
	if err != nil {
		return fmt.Errorf("list %s: %w", h.dir, err)
	}
	for _, n := range names {
		if n == stateDir || n == raftDir {
			return fmt.Errorf("%w: Config.Dir = %q has %s but no %s: restore the file, or give an empty directory to start as a new node", ErrInvalid, h.dir, n, identityFile)
		}
	}
	return nil
}

func (h *home) path(elem ...string) string {
	return h.fs.PathJoin(append([]string{h.dir}, elem...)...)
}

func (h *home) load() error {
	f, err := h.fs.Open(h.path(identityFile))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return fs.ErrNotExist
		}
		return fmt.Errorf("open %s: %w", h.path(identityFile), err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		return fmt.Errorf("read %s: %w", h.path(identityFile), err)
	}
	if err := json.Unmarshal(b, &h.id); err != nil {
		return fmt.Errorf("%w: %s is damaged: restore it, or give an empty directory to start as a new node: %w", ErrInvalid, h.path(identityFile), err)
	}
	if _, err := uuid.Parse(h.id.ID); err != nil {
		return fmt.Errorf("%w: %s has no valid id: restore it, or give an empty directory to start as a new node", ErrInvalid, h.path(identityFile))
	}
	if h.id.Plan != nil {
		h.plan = &wire.Plan{}
		if err := protojson.Unmarshal(h.id.Plan, h.plan); err != nil {
			return fmt.Errorf("%w: %s has a damaged plan: restore it: %w", ErrInvalid, h.path(identityFile), err)
		}
	}
	if h.plan != nil || h.id.Founded {
		if err := checkPlan(h.plan); err != nil {
			return fmt.Errorf("%w: %s has a damaged plan: restore it: %w", ErrInvalid, h.path(identityFile), err)
		}
	}
	return nil
}

// save writes node.json so that a crash leaves the old or the new one, and returns when it is on disk.
func (h *home) save() error {
	h.id.Plan = nil
	if h.plan != nil {
		p, err := protojson.Marshal(h.plan)
		if err != nil {
			return fmt.Errorf("encode plan: %w", err)
		}
		h.id.Plan = p
	}
	b, err := json.MarshalIndent(&h.id, "", "  ")
	if err != nil {
		return fmt.Errorf("encode identity: %w", err)
	}
	return h.replace(identityFile, append(b, '\n'))
}

// replace writes a file of the directory so that a crash leaves the old or the new one, and returns when it is on disk.
func (h *home) replace(name string, b []byte) error {
	tmp := h.path(name + ".tmp")
	if err := writeSynced(h.fs, tmp, b); err != nil {
		return err
	}
	if err := h.fs.Rename(tmp, h.path(name)); err != nil {
		return fmt.Errorf("rename %s: %w", tmp, err)
	}
	d, err := h.fs.OpenDir(h.dir)
	if err != nil {
		return fmt.Errorf("open %s: %w", h.dir, err)
	}
	return errors.Join(d.Sync(), d.Close())
}

func writeSynced(fs vfs.FS, name string, b []byte) error {
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("create %s: %w", name, err)
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

func (h *home) close() error { return h.lock.Close() }
