#!/usr/bin/env bash
# Makes what the compose file needs. Run it through the Makefile.
#
#   images.sh stage      fills compose/build, the build context of the image
#   images.sh image      stage, then the image ${WEIR_IMAGE:-weir:dev} on WEIR_BASE
#                        (debian:12-slim) with the Debian packages WEIR_PACKAGES
#   images.sh local      stage, then all images without pulling any: a Debian base
#                        by debootstrap, NATS and weir; prints their names as VAR=name
#   images.sh collector  the OpenTelemetry collector from its Go modules
#
# What takes long is kept in WEIR_CACHE (by default below the user's cache folder).
# Exit code 3: something that only a network could give is not to be had.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

suite=bookworm
nats_version=$(go list -m -f '{{.Version}}' github.com/nats-io/nats-server/v2)
cache=${WEIR_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/weir}
base_image=weir-local/base:$suite
nats_image=weir-local/nats:${nats_version#v}
weir_image=weir-local/weir:dev
otel_image=weir-local/collector:0.165.0
libs=.engine/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64

say() { echo "images.sh: $*" >&2; }
unavailable() { say "$*"; exit 3; }
# build is quiet about a builder that clients without plugins still have.
build() { docker build -q "$@" >/dev/null 2>"$scratch/build.log" || { cat "$scratch/build.log" >&2; return 1; }; }
have_image() { docker image inspect "$1" >/dev/null 2>&1; }

stage() {
	local root=compose/build/root
	rm -rf "$root"
	mkdir -p "$root/usr/local/bin"
	cp "${WEIR_BIN:-bin/weir}" "$root/usr/local/bin/weir"
	chmod 755 "$root/usr/local/bin/weir"
	if [ -d "$libs" ]; then
		mkdir -p "$root/opt/weir/engine"
		# libllama-common is not used, and needs a newer libstdc++.
		find "$libs" -name '*.so*' ! -name 'libllama-common*' -exec cp {} "$root/opt/weir/engine/" \;
		chmod 755 "$root/opt/weir/engine"/*
	fi
}

# base imports a minimal Debian without manuals, translations and package lists.
base() {
	local tarball=$cache/base-$suite.tar dir=$scratch/base
	if [ ! -s "$tarball" ]; then
		command -v debootstrap >/dev/null || unavailable "debootstrap is not installed"
		[ "$(id -u)" -eq 0 ] || unavailable "debootstrap needs root"
		say "making a Debian base, once"
		debootstrap --variant=minbase --include=libstdc++6 "$suite" "$dir" >"$cache/debootstrap.log" 2>&1 ||
			unavailable "debootstrap failed: $(tail -n 1 "$cache/debootstrap.log")"
		tar -C "$dir" --one-file-system -c --exclude=./proc/* --exclude=./sys/* --exclude=./dev/* \
			--exclude=./var/cache/* --exclude=./var/lib/apt/lists/* --exclude=./var/log/* \
			--exclude=./usr/share/doc/* --exclude=./usr/share/man/* --exclude=./usr/share/locale/* --exclude=./usr/share/info/* \
			. >"$tarball.part"
		mv "$tarball.part" "$tarball"
	fi
	docker import "$tarball" "$base_image" >/dev/null
}

# static_image NAME FILE ENTRYPOINT makes an image of one static program.
static_image() {
	local dir=$scratch/image
	mkdir "$dir"
	cp "$2" "$dir/program"
	printf 'FROM scratch\nCOPY program %s\nENTRYPOINT ["%s"]\n' "$3" "$3" >"$dir/Dockerfile"
	build -t "$1" "$dir"
	rm -rf "$dir"
}

nats() {
	local bin=$cache/nats-server-$nats_version
	if [ ! -x "$bin" ]; then
		say "building nats-server $nats_version, once"
		mkdir -p "$cache/gobin"
		GOBIN=$cache/gobin GOFLAGS= CGO_ENABLED=0 go install -trimpath -ldflags '-s -w' "github.com/nats-io/nats-server/v2@$nats_version" ||
			unavailable "nats-server $nats_version could not be built"
		mv "$cache/gobin/nats-server" "$bin"
	fi
	static_image "$nats_image" "$bin" /nats-server
}

collector() {
	local bin=$cache/collector-0.165.0 dir=$cache/collector-src
	if [ ! -x "$bin" ]; then
		say "building the collector, once; this takes some minutes"
		mkdir -p "$dir"
		sed "s|^dist:|dist:\n  output_path: $dir|" compose/collector/builder.yml >"$dir/builder.yml"
		GOWORK=off CGO_ENABLED=0 go run go.opentelemetry.io/collector/cmd/builder@v0.165.0 --config "$dir/builder.yml" >"$cache/collector.log" 2>&1 ||
			unavailable "the collector could not be built: $(tail -n 1 "$cache/collector.log")"
		mv "$dir/collector" "$bin"
	fi
	have_image "$otel_image" || static_image "$otel_image" "$bin" /otelcol
	echo "OTEL_IMAGE=$otel_image"
}

# weir_on NAME BASE PACKAGES makes the image of all services.
weir_on() {
	build -t "$1" --build-arg "BASE=$2" --build-arg "PACKAGES=$3" -f compose/Dockerfile compose/build
}

local_images() {
	stage
	have_image "$base_image" || base
	have_image "$nats_image" || nats
	weir_on "$weir_image" "$base_image" ""
	echo "WEIR_IMAGE=$weir_image"
	echo "NATS_IMAGE=$nats_image"
}

mkdir -p "$cache"
scratch=$(mktemp -d "$cache/work.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
case "${1:-}" in
stage) stage ;;
image)
	stage
	weir_on "${WEIR_IMAGE:-weir:dev}" "${WEIR_BASE:-debian:12-slim}" "${WEIR_PACKAGES-libstdc++6}"
	;;
local) local_images ;;
collector) collector ;;
*)
	say "usage: images.sh stage|image|local|collector"
	exit 2
	;;
esac
