#!/usr/bin/env bash
# Tests name the refusals of text, io, data and backend (tools/refusals), which finds planted ones that no test names.
set -euo pipefail
command -v python3 >/dev/null || { echo "skipped: there is no python3"; exit 77; }
export PYTHONDONTWRITEBYTECODE=1
tools=$(cd "$(dirname "$0")/../../tools" && pwd)
"$tools/refusals"
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree/src/io" "$tree/tests" "$tree/tools"
cat >"$tree/src/io/a.c" <<'END'
static int broken(const char *path, const char *why)
{
    return tt_fail(TT_ERR_DATA, "'%s' is broken in this way: %s", path, why);
}
int read_it(const char *path, int kind)
{
    if (kind == 1) return tt_fail(TT_ERR_INTERNAL, "nobody comes here with a kind of one");
    if (kind == 2) return broken(path, "its second half is missing");
    if (kind == 3) return broken(path, "its third half is " "superfluous");
    return tt_fail(TT_ERR_DATA, "%d is not a kind of such a file", kind);
}
END
# expect COUNT WORD: so many problems, one of which has the word.
expect() {
    local output
    output=$("$tools/refusals" --root "$tree" src/io) && [ "$1" -ne 0 ] && { echo "found nothing: $output"; exit 1; }
    grep -qF -- "$2" <<<"$output" && grep -qF ", $1 problems" <<<"$output" ||
        { echo "not $1 problems with '$2': $output"; exit 1; }
}
cat >"$tree/tests/a.c" <<'END'
expect("x' is broken in this way: its second half is missing", "7 is not a kind of such");
END
expect 1 "src/io/a.c:9: no test names the refusal 'its third half is superfluous'"
echo "src/io/a.c | no file has three halves | its third half is superfluous" >"$tree/tools/refusals-exceptions.txt"
expect 0 "4 refusals, 0 problems"
echo 'expect("its third half is superfluous");' >>"$tree/tests/a.c"
expect 1 "no longer needed: 'its third half is superfluous'"
rm "$tree/tools/refusals-exceptions.txt"
sed -i 's/its second half is missing/the end of it is missing/' "$tree/src/io/a.c"
expect 1 "no test names the refusal 'the end of it is missing'"
