#!/usr/bin/env bash
# What weir does, in half a minute: starts a stack on free ports, publishes a turn to
# NATS, then a second turn of the same session, which finds the first one's KV blocks,
# answer included, and stops everything. `make demo` builds what it needs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
dir=$(mktemp -d)
trap 'kill -INT "$up" 2>/dev/null || true; wait "$up" 2>/dev/null || true; rm -rf "$dir"' EXIT

echo "starting NATS, the services, one prefill and one decode executor ..."
bin/weir up --dir "$dir" --nats 127.0.0.1:0 --http 127.0.0.1:0 --direct-max=-1 -o json >"$dir/ready" 2>"$dir/err" &
up=$!
for _ in $(seq 600); do
	if grep -q '"event":"ready"' "$dir/ready"; then break; fi
	if ! kill -0 "$up" 2>/dev/null; then cat "$dir/err" >&2; exit 1; fi
	read -rt 0.1 <> <(:) || true
done
url=$(grep -o 'nats://[0-9.:]*' "$dir/ready" | head -n 1)
text=$(printf 'The harbour is full of boats and every boat carries a story. %.0s' $(seq 12))

ask() { # TEXT TURN [flags]
	printf '\n> %.60s ...\n' "$1"
	bin/weir turn "$1" --nats "$url" --session demo --turn "$2" "${@:3}" \
		--max-tokens 80 --temperature 0 --ignore-eos 2>"$dir/summary"
	cat "$dir/summary"
}
ask "$text" first
known=$(grep -oE 'known [0-9a-f]+' "$dir/summary" | cut -d' ' -f2)
# The second turn says only what is new: it continues what the first one ended with.
ask "And the captain, what does she say?" second --known "$known"
echo
echo "the default model has random weights: what it writes is gibberish, what it computes is real"
