//go:build unix

package main

import (
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"

	"github.com/oarlock/oarlock/node/fence"
)

// account is what the lock protects. A client reads the balance, works out a new one, and writes that.
type account struct {
	mu      sync.Mutex // guards balance
	balance int
}

func (a *account) get() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.balance
}

func (a *account) read(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, a.get()) }

func (a *account) write(w http.ResponseWriter, r *http.Request) {
	balance, err := strconv.Atoi(r.FormValue("balance"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.balance = balance
}

// handler serves the account. If it is fenced, a write under a token older than one seen is refused.
func (a *account) handler(fenced bool) http.Handler {
	var write http.Handler = http.HandlerFunc(a.write)
	if fenced {
		check := fence.HTTP{Resource: func(r *http.Request) string { return r.URL.Path }}
		write = check.Handler(write)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /account", a.read)
	mux.Handle("PUT /account", write)
	return mux
}

// A bank is a server on loopback.
type bank struct {
	server http.Server
	url    string
	served chan struct{} // closed when the server has stopped
}

func openBank(a *account, fenced bool) (*bank, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open the bank: %w", err)
	}
	b := &bank{url: "http://" + l.Addr().String() + "/account", served: make(chan struct{})}
	b.server.Handler = a.handler(fenced)
	go func() { // stops when close is called
		defer close(b.served)
		_ = b.server.Serve(l) // its error says that it was closed
	}()
	return b, nil
}

func (b *bank) close() {
	_ = b.server.Close()
	<-b.served
}
