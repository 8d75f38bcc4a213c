#!/usr/bin/env bash
# examples/preferences/demo.sh: the chosen answer is the likelier one in at most 60 % of held-out pairs, then in at least
# 90 %, and the last line is JSON with both.
set -euo pipefail
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "$1" && pwd)
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cd "$out" # the demo works from anywhere
TRIMTAB=$build/trimtab DEMO_OUT=$out/demo "$root/examples/preferences/demo.sh" | tee demo.log
tail -n 1 demo.log | grep -Eq '^\{"demo": "ok", "preferred_before": [0-9.]+, "preferred_after": [0-9.]+, "adapter": ".*", "seconds": [0-9.]+\}$'
[ -s "$out/demo/adapter/adapter_model.safetensors" ]
