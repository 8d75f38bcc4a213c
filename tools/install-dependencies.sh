#!/usr/bin/env bash
# Installs the Debian packages that are missing, says which, and does nothing when there are none.
#
#     tools/install-dependencies.sh build     to build trimtab
#     tools/install-dependencies.sh test      to build and run its tests too
set -euo pipefail

packages=(gcc libc6-dev cmake ninja-build pkg-config
          libjansson-dev libyaml-dev libpcre2-dev libutf8proc-dev liblzma-dev libcmocka-dev)
case ${1:-build} in
build) ;;
test) packages+=(python3 libopenmpi-dev openmpi-bin clang-format-14) ;;
*)
    echo "usage: $0 build|test" >&2
    exit 2
    ;;
esac

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    echo "no apt-get here: going on with what is installed; needed are (Debian names) ${packages[*]}" >&2
    exit 0
fi
missing=()
for package in "${packages[@]}"; do
    state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$state" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "error: neither root nor sudo; have these installed and run this again: ${missing[*]}" >&2
        exit 1
    fi
    as_root=(sudo)
fi
echo "installing with apt: ${missing[*]}" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
install() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=120 \
        -o Acquire::Retries=3 "$@" >"$log" 2>&1 </dev/null
}
if ! install update || ! install install --no-install-recommends "${missing[@]}"; then
    cat "$log" >&2
    echo "error: apt could not install ${missing[*]}" >&2
    exit 1
fi
