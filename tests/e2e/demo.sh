#!/usr/bin/env bash
# The demo: exact match rises from under 5 % to over 90 %, and the last line is JSON with both.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cd "$out" # the demo works from anywhere
TRIMTAB=$1/trimtab DEMO_OUT=$out "$root/demo.sh" | tee demo.log
tail -n 1 demo.log | grep -Eq '^\{"demo": "ok", "eval_loss_before": [0-9.]+, "eval_loss_after": [0-9.]+, '\
'"exact_match_before": [0-9.]+, "exact_match_after": [0-9.]+, "adapter": ".*", "seconds": [0-9.]+\}$'
[ -s "$out/adapter/adapter_model.safetensors" ]
[ -s "$out/adapter/adapter_config.json" ]
