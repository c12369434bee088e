package fence_test

import (
	"errors"
	"fmt"

	"github.com/oarlock/oarlock/node/fence"
)

// A takes the lock, gets token 33 and is paused. Its lease ends, B gets the lock with token 34 and writes. Then A wakes up
// and writes what it had in mind.
func ExampleGuard() {
	type write struct {
		who     string
		token   uint64
		balance int
	}
	writes := []write{{"B", 34, 90}, {"A", 33, 100}}

	fmt.Println("without fencing:")
	balance := 80
	for _, w := range writes {
		balance = w.balance
		fmt.Printf("  %s write accepted\n", w.who)
	}
	fmt.Printf("  final value: 'balance=%d'\n", balance)

	fmt.Println("with fencing tokens:")
	balance = 80
	var guard fence.Guard // beside the balance, not in the clients
	for _, w := range writes {
		err := guard.Check("balance", w.token)
		if stale, ok := errors.AsType[*fence.StaleError](err); ok {
			fmt.Printf("  %s write rejected (token %d < %d)\n", w.who, stale.Token, stale.Seen)
			continue
		}
		balance = w.balance
		fmt.Printf("  %s write accepted (token %d)\n", w.who, w.token)
	}
	fmt.Printf("  final value: 'balance=%d'\n", balance)

	// Output:
	// without fencing:
	//   B write accepted
	//   A write accepted
	//   final value: 'balance=100'
	// with fencing tokens:
	//   B write accepted (token 34)
	//   A write rejected (token 33 < 34)
	//   final value: 'balance=90'
}
