#!/usr/bin/env bash
# Unpacks promtool from Debian's package prometheus (19 MB) into a folder, and prints that folder. Installed, the package
# would start a server. Prints nothing where the package cannot be had: the tests skip what needs promtool.
#
#     PATH=$PATH:$(tools/promtool.sh FOLDER)
set -euo pipefail
[ $# -eq 1 ] || { sed -n '5p' "${BASH_SOURCE[0]}" >&2; exit 2; }
mkdir -p "$1"
folder=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
download() { apt-get -qq -o APT::Sandbox::User=root download prometheus >&2; }
unpack() {
    cd "$work" || return
    download || { apt-get -qq update >&2 && download; } || return
    dpkg-deb --fsys-tarfile prometheus_*.deb | tar x ./usr/bin/promtool
}
if [ ! -x "$folder/promtool" ]; then
    (unpack) || { echo "no promtool: the tests that need it are skipped" >&2; exit 0; }
    mv "$work/usr/bin/promtool" "$folder/promtool"
fi
echo "$folder"
