// Package logbridge brings the logs of what we build on to the node's one hclog.Logger, and keeps their ways of ending the
// process from ending it.
//
// Attach routes dragonboat's process-wide loggers to the nodes that live in this process. Pebble is the logger for a
// pebble/v2 store: its Fatalf reports the failure and freezes the store instead of exiting. Slog lets a *slog.Logger stand
// where an hclog.Logger is asked for. SettingsFiles finds the files by which dragonboat can be changed from outside.
//
// It decides no log levels beyond the mapping, writes no files, and starts goroutines only in PebbleLogger.Do.
package logbridge
