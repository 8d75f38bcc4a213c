#!/usr/bin/env bash
# examples/detection/demo.sh: mAP50 rises from under 0.05 to over 0.8, with pictures; the last line is JSON with both.
set -euo pipefail
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "$1" && pwd)
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cd "$out" # the demo works from anywhere
cp "$root"/tests/golden/images/rgb.png .
probe=$("$build/trimtab" detect --weights-path "$root"/tests/golden/detect/retinanet/weights.pth --local-image-dir . \
    --evaluate false --image-size 64 2>&1) || true
if grep -q "this build has no" <<<"$probe"; then
    echo "skipped: ${probe#error: }"
    exit 77
fi
TRIMTAB=$build/trimtab DEMO_OUT=$out/demo "$root/examples/detection/demo.sh" | tee demo.log
tail -n 1 demo.log | grep -Eq '^\{"demo": "ok", "map_50_before": [0-9.]+, "map_50_after": [0-9.]+, "weights": ".*", "seconds": [0-9.]+\}$'
[ -s "$out/demo/trained/model.pth" ]
[ "$(ls "$out/demo/found/pictures" | wc -l)" -eq 8 ]
