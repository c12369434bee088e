// Package memberpb holds the encoding of the record that each node gossips about itself. It is generated from
// record.proto; package membership checks what it decodes.
package memberpb

//go:generate protoc --proto_path=../.. --go_out=../.. --go_opt=paths=source_relative membership/memberpb/record.proto
