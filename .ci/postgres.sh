# Sourced by run. postgres_start starts a PostgreSQL server of its own, installing Debian's package if it has to and can, and
# exports OARLOCK_POSTGRES; it says so and returns 1 if there can be none. postgres_stop ends that server and no other.

postgres_dir=
postgres_log=.ci/tools/postgres.log

# postgres_bin prints the directory of the newest server installed.
postgres_bin() {
	local found
	found=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1)
	if [ -z "$found" ] && command -v initdb >/dev/null; then
		found=$(dirname "$(command -v initdb)")
	fi
	[ -n "$found" ] && [ -x "$found/initdb" ] && [ -x "$found/pg_ctl" ] && echo "$found"
}

# debian_install installs a package of a server. It needs root and Debian. The package would start a server of its own: policy-rc.d keeps it
# from that.
debian_install() {
	local package=$1 log=$2 policy=/usr/sbin/policy-rc.d ours= status=0
	[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
	echo "--- $package: installing Debian's package (a minute, once)"
	if [ ! -e "$policy" ]; then
		printf '#!/bin/sh\nexit 101\n' >"$policy"
		chmod 755 "$policy"
		ours=1
	fi
	export DEBIAN_FRONTEND=noninteractive
	{
		timeout 2m apt-get update -q
		timeout 5m apt-get install -y -q --no-install-recommends "$package"
	} >"$log" 2>&1 </dev/null || status=1
	[ -z "$ours" ] || rm -f "$policy"
	return "$status"
}

# postgres_as runs a command as a user that the server agrees to run as: not root.
postgres_as() {
	if [ "$(id -u)" = 0 ]; then
		(cd / && runuser -u postgres -- "$@")
	else
		(cd / && "$@")
	fi
}

postgres_left_out() {
	echo "--- postgres: left out, $1 (see $postgres_log)"
	return 1
}

postgres_start() {
	local bin port try
	mkdir -p .ci/tools
	: >"$postgres_log"
	if ! bin=$(postgres_bin) && ! { debian_install postgresql "$postgres_log" && bin=$(postgres_bin); }; then
		postgres_left_out "it is not installed and cannot be had here" || return 1
	fi
	postgres_dir=$(mktemp -d)
	[ "$(id -u)" != 0 ] || chown postgres "$postgres_dir"
	if ! postgres_as "$bin/initdb" -D "$postgres_dir/data" -U postgres -A trust -E UTF8 --locale=C --no-sync >>"$postgres_log" 2>&1; then
		postgres_left_out "initdb failed" || return 1
	fi
	for try in 1 2 3 4 5 6 7 8; do # below the ports that the system gives out; a taken one makes the start fail
		port=$((20000 + RANDOM % 10000))
		if postgres_as "$bin/pg_ctl" -D "$postgres_dir/data" -l "$postgres_dir/log" -w -t 60 -s start \
			-o "-c listen_addresses=127.0.0.1 -c port=$port -c unix_socket_directories= -c fsync=off" >>"$postgres_log" 2>&1 </dev/null; then
			export OARLOCK_POSTGRES="postgres://postgres@127.0.0.1:$port/postgres?sslmode=disable"
			echo "--- postgres: $("$bin/postgres" --version) runs on port $port"
			return 0
		fi
	done
	cat "$postgres_dir/log" >>"$postgres_log" 2>/dev/null || true
	postgres_left_out "the server does not start"
}

postgres_stop() {
	local pid=
	[ -n "$postgres_dir" ] || return 0
	if [ -r "$postgres_dir/data/postmaster.pid" ]; then
		pid=$(head -n 1 "$postgres_dir/data/postmaster.pid")
		kill -INT "$pid" 2>/dev/null || true # a fast shutdown
		for _ in $(seq 100); do
			kill -0 "$pid" 2>/dev/null || break
			sleep 0.1
		done
	fi
	rm -rf "$postgres_dir"
	postgres_dir=
}
