package fence_test

import (
	"errors"
	"fmt"
	"sync"

	"github.com/oarlock/oarlock/node/fence"
)

// object is what an object store keeps under a key: the body, the metadata with our token, the entity tag.
type object struct {
	body  string
	token uint64
	etag  int // 0: there is no object
}

var errPrecondition = errors.New("412 Precondition Failed")

// bucket stands for an object store with conditional puts.
type bucket struct {
	mu      sync.Mutex // guards objects
	objects map[string]object
}

func (b *bucket) get(key string) object {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.objects[key]
}

// put is a put with If-Match: etag, or with If-None-Match: * if etag is 0.
func (b *bucket) put(key, body string, token uint64, etag int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.objects[key].etag != etag {
		return errPrecondition
	}
	b.objects[key] = object{body, token, etag + 1}
	return nil
}

// putFenced writes body under a token, unless a larger one has written. pause is where a holder may be held up.
func putFenced(b *bucket, key, body string, token uint64, pause func()) error {
	for {
		old := b.get(key)
		if err := fence.Compare(key, token, old.token); err != nil {
			return err
		}
		pause()
		err := b.put(key, body, token, old.etag)
		if !errors.Is(err, errPrecondition) {
			return err
		}
	}
}

// A (token 33) has read and compared when it is paused, and B (token 34) writes. When A wakes up and puts, the condition
// on the entity tag fails; A reads again, and now the comparison refuses it. A retry of B's own put goes through.
func Example_objectStore() {
	b := &bucket{objects: map[string]object{}}
	never := func() {}
	first := putFenced(b, "report", "by A", 33, never)

	var byB error
	late := putFenced(b, "report", "late, by A", 33, sync.OnceFunc(func() {
		byB = putFenced(b, "report", "by B", 34, never)
	}))
	again := putFenced(b, "report", "by B", 34, never)

	fmt.Println("A:", first)
	fmt.Println("B:", byB)
	fmt.Println("A, late:", late)
	fmt.Println("B, again:", again)
	fmt.Printf("the object: %q, token %d\n", b.get("report").body, b.get("report").token)
	// Output:
	// A: <nil>
	// B: <nil>
	// A, late: write to "report" rejected (token 33 < 34): stale fencing token
	// B, again: <nil>
	// the object: "by B", token 34
}
