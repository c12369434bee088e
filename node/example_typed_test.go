package node_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/oarlock/oarlock/node"
)

// Settings of a type, checked before each write and after each read, and kept up to date in the background.
func ExampleTyped() {
	ctx := context.Background()
	n, stop, err := openAlone(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()

	records := node.Typed[settings]{Shard: n.Shard("settings"), Validate: settings.validate}
	live, err := records.Live(ctx, "settings/eu", settingsDefault())
	if err != nil {
		fmt.Println(err)
		return
	}
	changed := live.Changed() // taken before Load, so that no change is missed
	fmt.Println("at first", live.Load().Limit)
	_, err = records.Put(ctx, "settings/eu", tooMany(), nil)
	fmt.Println("refused:", errors.Is(err, node.ErrBadValue))
	if _, err := records.Update(ctx, "settings/eu", doubled); err != nil {
		fmt.Println(err)
		return
	}
	<-changed
	fmt.Println("then", live.Load().Limit)
	// Output:
	// at first 10
	// refused: true
	// then 20
}

type settings struct{ Limit int }

func (s settings) validate() error {
	if s.Limit < 1 || s.Limit > 100 {
		return fmt.Errorf("a limit of %d: give 1 to 100", s.Limit)
	}
	return nil
}

func settingsDefault() settings { return settings{Limit: 10} }

func tooMany() settings { return settings{Limit: 1000} }

func doubled(old settings, found bool) (settings, error) {
	if !found {
		old = settingsDefault()
	}
	old.Limit *= 2
	return old, nil
}
