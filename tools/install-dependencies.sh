#!/usr/bin/env bash
# Installs what Trimtab builds with, from Debian's packages, and says so; does nothing when all is there.
# Usage: tools/install-dependencies.sh [--test]   (--test: also what only the tests need)
set -euo pipefail

packages=(gcc libc6-dev cmake ninja-build pkg-config libdnnl-dev libjansson-dev libyaml-dev libpcre2-dev libutf8proc-dev)
[ "${1:-}" != --test ] || packages+=(libcmocka-dev libopenmpi-dev openmpi-bin clang-format python3)

missing=()
for package in "${packages[@]}"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q '^install ok installed$' || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "error: these packages are missing and need root to install: ${missing[*]}" >&2; exit 1; }
    as_root=(sudo)
fi
echo "installing from Debian: ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
install() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}" >"$log" 2>&1; }
# A fresh machine has no package lists, an old one may have stale ones: fetch them and try again.
install || { "${as_root[@]}" apt-get update >"$log" 2>&1 && install; } || { cat "$log" >&2; echo "error: apt-get could not install: ${missing[*]}" >&2; exit 1; }
