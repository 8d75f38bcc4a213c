#!/usr/bin/env bash
# Every .c and .h file is as clang-format 14 lays it out; comments are left alone. Other versions lay out differently.
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
failed=0
while IFS= read -r -d '' file; do
    if ! "$format" --dry-run -Werror "$file" >/dev/null 2>&1; then
        echo "$file: not formatted; run $format -i $file"
        failed=1
    fi
done < <(find src include tests fuzz bench examples \( -name '*.c' -o -name '*.h' \) -print0)
exit $failed
