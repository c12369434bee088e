// Package fsmpb holds the messages of a shard's log: the commands that package fsm applies, and their results.
// It is generated from command.proto, which documents each field, and holds no logic.
package fsmpb

//go:generate protoc --proto_path=../.. --go_out=../.. --go_opt=paths=source_relative fsm/fsmpb/command.proto
