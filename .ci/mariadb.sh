# Sourced by run, after postgres.sh, whose way of installing it shares. mariadb_start starts a MariaDB server of its own, installing Debian's
# package if it has to and can, and exports OARLOCK_MYSQL; it says so and returns 1 if there can be none. mariadb_stop ends that
# server and no other.

mariadb_dir=
mariadb_pid=
mariadb_log=.ci/tools/mariadb.log

mariadb_left_out() {
	echo "--- mariadb: left out, $1 (see $mariadb_log)"
	return 1
}

# mariadb_serve starts the server on a port and waits until it answers.
mariadb_serve() {
	local user=
	[ "$(id -u)" != 0 ] || user=--user=mysql
	mariadbd --no-defaults $user --datadir="$mariadb_dir/data" --bind-address=127.0.0.1 --port="$1" --socket="$mariadb_dir/socket" \
		--pid-file="$mariadb_dir/pid" --skip-grant-tables --skip-networking=0 --innodb-flush-log-at-trx-commit=0 >>"$mariadb_log" 2>&1 </dev/null &
	mariadb_pid=$!
	for _ in $(seq 300); do
		mariadb-admin --no-defaults --socket="$mariadb_dir/socket" ping >/dev/null 2>&1 && return 0
		kill -0 "$mariadb_pid" 2>/dev/null || return 1
		sleep 0.1
	done
	return 1
}

mariadb_start() {
	local port user=
	mkdir -p .ci/tools
	: >"$mariadb_log"
	if ! command -v mariadbd >/dev/null && ! { debian_install mariadb-server "$mariadb_log" && command -v mariadbd >/dev/null; }; then
		mariadb_left_out "it is not installed and cannot be had here" || return 1
	fi
	mariadb_dir=$(mktemp -d)
	if [ "$(id -u)" = 0 ]; then
		chown mysql "$mariadb_dir"
		user=--user=mysql
	fi
	if ! mariadb-install-db --no-defaults $user --datadir="$mariadb_dir/data" --skip-test-db >>"$mariadb_log" 2>&1 </dev/null; then
		mariadb_left_out "mariadb-install-db failed" || return 1
	fi
	for _ in 1 2 3 4 5 6 7 8; do # below the ports that the system gives out; a taken one makes the start fail
		port=$((20000 + RANDOM % 10000))
		if mariadb_serve "$port"; then
			export OARLOCK_MYSQL="root@tcp(127.0.0.1:$port)/"
			echo "--- mariadb: $(mariadbd --version) runs on port $port"
			return 0
		fi
	done
	mariadb_left_out "the server does not start"
}

mariadb_stop() {
	[ -n "$mariadb_dir" ] || return 0
	if [ -n "$mariadb_pid" ]; then
		kill "$mariadb_pid" 2>/dev/null || true
		wait "$mariadb_pid" 2>/dev/null || true
	fi
	rm -rf "$mariadb_dir"
	mariadb_dir=
}
