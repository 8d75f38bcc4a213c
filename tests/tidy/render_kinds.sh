#!/usr/bin/env bash
# What tells one kind of cluster object from the others stands in src/render/kinds.def: no source asks for a kind by its
# name, but for the one that is rendered where no word names one.
set -euo pipefail
cd "$(dirname "$0")/../.."
kinds=$(sed -n 's/^KIND(\([A-Z]*\),.*/\1/p' src/render/kinds.def | paste -sd '|')
[ "$(tr '|' '\n' <<<"$kinds" | wc -l)" -ge 7 ] || { echo "FAILED: kinds.def has the kinds $kinds"; exit 1; }
found=$(grep -rnE "TT_RENDER_($kinds)\b" src --include='*.c' --include='*.h' | grep -v 'kind = TT_RENDER_JOBSET;' || true)
[ -z "$found" ] || { echo "FAILED: a column of kinds.def should say it:"; echo "$found"; exit 1; }
