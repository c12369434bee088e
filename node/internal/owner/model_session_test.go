package owner

import "github.com/oarlock/oarlock/fsm"

// adopt is the owner's first knowledge of the session, at its claim or at the session's opening.
func (m *model) adopt(s *state, i int) {
	n := &s.nodes[i]
	l := n.machine.life
	n.own.known, n.own.doubt = true, false
	n.own.session = m.rules.session.adopted(unit(m.ttl), l.Silence, unit(n.now))
	n.own.session.Hot = l.IsHot(fsm.Token(n.own.token))
}

func (m *model) sessionMoves(s *state, add func(action)) {
	h := &s.holder
	for k := range m.messages {
		x := s.messages[k]
		switch x.phase {
		case noMessage:
			if k > 0 && s.messages[0].phase == noMessage {
				continue
			}
			if h.has && m.rules.lease.good(h.word, unit(h.now)) {
				add(act(send, int(k)))
			}
			if !h.has && (!h.asked || m.openable(s)) {
				add(act(send, int(k)))
			}
		case renewalSent, openSent:
			for i := range s.nodes {
				if m.takes(s, i, x) {
					add(act(deliver, int(k), i))
				}
			}
			add(act(drop, int(k)))
		case renewalKnown:
			add(act(account, int(k)))
		case renewalAnswered, openAnswered:
			add(act(receive, int(k)))
			add(act(drop, int(k)))
		}
	}
}

// openable says whether the session may still be asked for: not once it ended.
func (m *model) openable(s *state) bool { return !s.expired }

// takes says whether node i would do something with the message.
func (m *model) takes(s *state, i int, x message) bool {
	n := &s.nodes[i]
	if n.own.token == 0 || n.own.word == ended {
		return false
	}
	room := n.queue[0].kind == 0 || n.queue[1].kind == 0
	if x.phase == openSent {
		return room && m.good(s, i)
	}
	if !n.own.known {
		return false
	}
	switch m.rules.session.renew(n.own.session, m.good(s, i)) {
	case InMemory:
		return true
	case InLog:
		return room && !n.own.session.Renewing
	}
	return false
}

func (m *model) sent(s *state, k int) {
	h := &s.holder
	s.messages[k] = message{phase: renewalSent, sent: h.now}
	if !h.has {
		if !h.asked || m.rules.broken.openFromLast {
			h.asked, h.first = true, h.now
		}
		s.messages[k].phase = openSent
	}
}

func (m *model) delivered(s *state, k, i int) {
	n, x := &s.nodes[i], &s.messages[k]
	if x.phase == openSent {
		x.phase, x.at = openHeld, uint8(i)
		n.enqueue(entry{kind: openEntry})
		return
	}
	if m.rules.session.renew(n.own.session, m.good(s, i)) == InMemory {
		n.own.session = AfterRenewal(n.own.session, InMemory, unit(n.now))
		x.phase = renewalAnswered
		return
	}
	n.own.session.Renewing = true
	x.phase, x.at, x.token = renewalHeld, uint8(i), n.own.token
	if m.rules.broken.answerEarly {
		*x = message{phase: renewalAnswered, sent: x.sent}
	}
	n.enqueue(entry{kind: renewEntry})
}

// received is the holder learning that its renewal, or its opening, was accepted.
func (m *model) received(s *state, k int) {
	h, x := &s.holder, s.messages[k]
	s.messages[k] = message{}
	from := x.sent
	if m.rules.broken.sessionFromDone {
		from = h.now
	}
	switch {
	case x.phase == openAnswered && !h.has:
		h.has, h.word = true, int64(LeaseUntil(unit(h.first), unit(m.ttl)))
	case x.phase == renewalAnswered:
		h.word = m.rules.lease.extend(h.word, unit(h.now), LeaseUntil(unit(from), unit(m.ttl)))
	}
}

// answer is what the owner does once its operation was applied.
func (m *model) answer(s *state, i int, e entry) {
	n := &s.nodes[i]
	switch e.kind {
	case openEntry:
		s.reply(i, openHeld, openAnswered)
	case renewEntry:
		s.reply(i, renewalHeld, renewalKnown)
	case expireEntry:
		n.own.doubt = false
	}
}

// accounted is the owner noting a logged renewal in its memory, and answering it, which it does also if it has ended meanwhile.
func (m *model) accounted(s *state, k int) {
	x := &s.messages[k]
	n := &s.nodes[x.at]
	if n.own.known && n.own.token == x.token {
		n.own.session.Renewing = false
		n.own.session = AfterRenewal(n.own.session, InLog, unit(n.now))
	}
	*x = message{phase: renewalAnswered, sent: x.sent}
}

// unanswered is what it does when the operation was dropped, or when its outcome is unknown.
func (m *model) unanswered(s *state, i int, e entry, unknown bool) {
	n := &s.nodes[i]
	if e.kind == openEntry {
		s.reply(i, openHeld, noMessage)
	}
	if e.kind == renewEntry {
		s.reply(i, renewalHeld, noMessage)
	}
	switch {
	case !n.own.known:
	case e.kind == renewEntry:
		n.own.session.Renewing = false
	case e.kind == expireEntry:
		switch {
		case m.rules.broken.spareUnknown, !unknown && !n.own.doubt:
			n.own.session.Expiring = false
		default:
			n.own.doubt = true // it is proposed again
		}
	}
}

// reply moves the messages that node i holds on.
func (s *state) reply(i int, from, to uint8) {
	for k := range s.messages {
		if x := &s.messages[k]; x.phase == from && int(x.at) == i {
			if x.phase = to; to == noMessage {
				*x = message{}
			}
		}
	}
}

func (m *model) expire(s *state, i int) {
	n := &s.nodes[i]
	n.own.session.Expiring = true
	n.enqueue(entry{kind: expireEntry})
}

func (m *model) checkpoint(s *state, i int) {
	n := &s.nodes[i]
	n.enqueue(entry{kind: checkpointEntry, span: int16(Silence(n.own.session, unit(n.now))), about: uint8(n.machine.life.Heard)})
	n.own.session = m.rules.session.checkpointing(n.own.session)
}
