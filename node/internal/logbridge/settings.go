package logbridge

import (
	"os"
	"path/filepath"
)

// SettingsFiles returns the paths of the files in dir that change dragonboat's behaviour. dragonboat reads them from the
// working directory when the program starts, before any code of ours runs, so they can only be warned of: whoever can write
// there can change how the log is kept. dir is usually "."; one that cannot be read has none.
func SettingsFiles(dir string) []string {
	var found []string
	for _, name := range []string{"dragonboat-hard-settings.json", "dragonboat-soft-settings.json"} {
		path := filepath.Join(dir, name)
		if _, err := os.Lstat(path); err == nil {
			found = append(found, path)
		}
	}
	return found
}
