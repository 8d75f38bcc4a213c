#!/usr/bin/env bash
# Configures and builds quietly; prints the log when a step fails.
#
#     tools/build.sh FOLDER "CMAKE OPTIONS" [target ...]
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
folder=$1
read -ra options <<<"$2"
shift 2
targets=()
for target in "$@"; do targets+=(--target "$target"); done
mkdir -p "$folder"
log=$folder/build.log
generator=()
[ -e "$folder/CMakeCache.txt" ] || ! command -v ninja >/dev/null || generator=(-G Ninja)
echo "building in $folder (log: $log)" >&2
if ! cmake -S "$root" -B "$folder" "${generator[@]}" "${options[@]}" >"$log" 2>&1 ||
    ! cmake --build "$folder" --parallel "$(nproc)" "${targets[@]}" >>"$log" 2>&1; then
    tail -n 60 "$log" >&2
    echo "error: the build failed; all of its log is in $log" >&2
    exit 1
fi
sed -n 's/^-- \(GPU plugin: .*\)$/\1/p' "$log" >&2
