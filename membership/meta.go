package membership

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/oarlock/oarlock/membership/memberpb"
)

// recordVersion is the version of the encoding. Fields that older nodes may ignore do not change it.
const recordVersion = 1

// A claim is a record as it travels: with its place among the records of the same node.
type claim struct {
	Record
	revision uint64 // from 1 in each incarnation, raised by each change
	leaving  bool   // the node announced that it leaves
}

// newer says that c replaces old, a claim of the same process or of an earlier one.
func (c claim) newer(old claim) bool {
	if c.Incarnation != old.Incarnation {
		return c.Incarnation > old.Incarnation
	}
	return c.Nonce == old.Nonce && c.revision > old.revision
}

// encode is deterministic, and neither revision nor leaving changes the size: what fitted at first fits for ever.
func encode(c claim) ([]byte, error) {
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	id, _ := parseUUID(c.ID) // checked
	m := &memberpb.Record{
		Version:     recordVersion,
		Id:          id[:],
		Name:        c.Name,
		Addr:        c.Addr,
		Zone:        c.Zone,
		Tags:        c.Tags,
		Incarnation: c.Incarnation,
		Nonce:       c.Nonce,
		Founder:     uint32(c.Founder),
		MinVersion:  c.MinVersion,
		MaxVersion:  c.MaxVersion,
		Runs:        c.Runs,
		NoReplicas:  c.NoReplicas,
		Shards:      c.Shards,
		Replicas:    c.Replicas,
		Revision:    c.revision,
		Phase:       memberpb.Phase_PHASE_UP,
	}
	if c.Cluster != "" {
		u, _ := parseUUID(c.Cluster) // checked
		m.Cluster = u[:]
	}
	if c.Runs && c.Room >= 0 {
		m.Room = proto.Uint32(uint32(c.Room))
	}
	if c.leaving {
		m.Phase = memberpb.Phase_PHASE_LEAVING
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if len(b) > MaxRecord {
		return nil, fmt.Errorf("%w: %d bytes, at most %d are allowed; shorten tags, name or zone", ErrTooLarge, len(b), MaxRecord)
	}
	return b, nil
}

// decode reads what node name says of itself.
func decode(name string, b []byte) (claim, error) {
	c, err := parse(b)
	if err == nil && c.ID != name {
		err = fmt.Errorf("%w: of %s, sent as %s", errMalformed, c.ID, short(name))
	}
	return c, err
}

// parse accepts nothing that encode could not have written, but fields added by later versions.
func parse(b []byte) (claim, error) {
	if len(b) > MaxRecord {
		return claim{}, fmt.Errorf("%w: %d bytes", errMalformed, len(b))
	}
	var m memberpb.Record
	if err := proto.Unmarshal(b, &m); err != nil {
		return claim{}, fmt.Errorf("%w: %w", errMalformed, err)
	}
	if m.GetVersion() > recordVersion {
		return claim{}, fmt.Errorf("%w: %d, this node reads %d", errVersion, m.GetVersion(), recordVersion)
	}
	if m.GetVersion() == 0 || len(m.GetId()) != 16 || m.GetRevision() == 0 {
		return claim{}, fmt.Errorf("%w: version %d, %d bytes of id, revision %d", errMalformed, m.GetVersion(), len(m.GetId()), m.GetRevision())
	}
	c := claim{
		Record: Record{
			ID:          formatUUID(m.GetId()),
			Name:        m.GetName(),
			Addr:        m.GetAddr(),
			Zone:        m.GetZone(),
			Tags:        m.GetTags(),
			Incarnation: m.GetIncarnation(),
			Nonce:       m.GetNonce(),
			Founder:     int(m.GetFounder()),
			MinVersion:  m.GetMinVersion(),
			MaxVersion:  m.GetMaxVersion(),
			Runs:        m.GetRuns(),
			NoReplicas:  m.GetNoReplicas(),
			Shards:      m.GetShards(),
			Replicas:    m.GetReplicas(),
		},
		revision: m.GetRevision(),
		leaving:  m.GetPhase() == memberpb.Phase_PHASE_LEAVING,
	}
	switch len(m.GetCluster()) {
	case 0:
	case 16:
		c.Cluster = formatUUID(m.GetCluster())
	default:
		return claim{}, fmt.Errorf("%w: %d bytes of cluster", errMalformed, len(m.GetCluster()))
	}
	switch {
	case m.Room != nil:
		c.Room = int(m.GetRoom())
	case c.Runs:
		c.Room = -1
	}
	if err := c.check(); err != nil {
		return claim{}, fmt.Errorf("%w: %w", errMalformed, err)
	}
	return c, nil
}
