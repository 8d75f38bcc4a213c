#!/usr/bin/env bash
# Every .c and .h file has the layout of clang-format 14, except comments. Other versions give another layout.
set -euo pipefail
cd "$(dirname "$0")/../.."
format=
for candidate in clang-format-14 clang-format; do
    if command -v "$candidate" >/dev/null && "$candidate" --version | grep -q 'version 14\.'; then
        format=$candidate
        break
    fi
done
[ -n "$format" ] || { echo "skipped: there is no clang-format 14"; exit 77; }
# All files in few calls: starting the program takes as long as reading a file.
if ! said=$(find src include tests fuzz bench examples \( -name '*.c' -o -name '*.h' \) -print0 |
    xargs -0 "$format" --dry-run -Werror 2>&1); then
    mapfile -t files < <(sed -n 's/^\([^:]*\):[0-9]*:[0-9]*: error: code should be clang-formatted.*/\1/p' <<<"$said" | sort -u)
    [ ${#files[@]} -gt 0 ] || echo "$said"
    for file in "${files[@]}"; do echo "$file: not formatted; run $format -i $file"; done
    exit 1
fi
