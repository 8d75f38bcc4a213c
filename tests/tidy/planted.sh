#!/usr/bin/env bash
# tools/tidy and tools/floors find planted faults in a small tree, and nothing in a clean one.
set -euo pipefail
command -v python3 >/dev/null || { echo "skipped: there is no python3"; exit 77; }
export PYTHONDONTWRITEBYTECODE=1
tools=$(cd "$(dirname "$0")/../../tools" && pwd)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failed=0

fresh() {
    rm -rf "${tree:?}"/*
    mkdir -p "$tree/tools" "$tree/src/base" "$tree/src/backend" "$tree/src/cli" "$tree/tests/ops"
    printf 'base:\nbackend: base\ncli: base backend\n' >"$tree/tools/floors.txt"
    printf 'OP(add)\n' >"$tree/src/backend/ops.def"
    printf 'void test(void) { tt_add(0); }\n' >"$tree/tests/ops/add.c"
    printf '/* The program. */\n#include "base/a.h"\n#include <stdio.h>\n' >"$tree/src/cli/main.c"
    printf 'int main(void)\n{\n    printf("exit(1)");\n    return 0;\n}\n' >>"$tree/src/cli/main.c"
    printf '#ifdef __cplusplus\nextern "C" {\n#endif\nvoid a(void);\n#ifdef __cplusplus\n}\n#endif\n' >"$tree/src/base/a.h"
    cat >"$tree/src/base/a.c" <<'END'
#include "base/a.h"
/* printf("a comment"), exit(1) */
static const char *const names[] = {"printf(", "}"};
static const struct pair {
    int x;
} pairs[] = {{1}, {2}};
static _Thread_local int last;
typedef int pair_fn(int x);
enum { LIMIT = 3 };
void a(void)
{
    static const int table[] = {1, 2};
    (void)names, (void)table, (void)pairs, last = LIMIT, comm->abort(0);
}
END
}
# expect WORD...: the tools fail and name every word; without words they succeed.
expect() {
    local output status=0 word
    output=$("$tools/tidy" --root "$tree" 2>&1) || status=1
    output+=$("$tools/floors" --root "$tree" 2>&1) || status=1
    if [ $# -eq 0 ] && [ $status -ne 0 ]; then
        echo "a clean tree was refused:"$'\n'"$output"
        failed=1
    fi
    for word in "$@"; do
        if [ $status -eq 0 ] || ! grep -qF -- "$word" <<<"$output"; then
            echo "not found: $word in"$'\n'"$output"
            failed=1
        fi
    done
}
lines() { for ((i = 0; i < $1; i++)); do echo "    x++;"; done; }

fresh && expect
fresh && lines 601 | sed 's/^/\/\/ /' >>"$tree/src/base/a.c" && expect "[file]"
fresh && { echo "int long_one(int x)"; echo "{"; lines 69; echo "}"; } >>"$tree/src/base/a.c" && expect "[function]"
fresh && { echo "int fits(int x)"; echo "{"; lines 68; echo "}"; } >>"$tree/src/base/a.c" && expect
fresh && echo "int reads(void) { return open(0, 0) + stat(0, 0); }" >>"$tree/src/base/a.c" && expect
fresh && echo "int reads(void) { return open(0, 0); }" >>"$tree/src/cli/main.c" && expect "[posix]"
fresh && echo "int moves(void) { return rename(0, 0); }" >>"$tree/src/cli/main.c" && expect "[posix]"
fresh && echo "// TO""DO: later" >>"$tree/src/base/a.c" && expect "[reminder]"
fresh && printf '/* %0113d */\n' 1 >>"$tree/src/base/a.h" && expect
fresh && printf '/* %0116d */\n' 1 >>"$tree/src/base/a.h" && expect "[line]"
fresh && echo "int x; " >>"$tree/tests/ops/add.c" && expect "[space]"
fresh && echo "void b(void) { printf(\"\"); }" >>"$tree/src/base/a.c" && expect "[print]"
fresh && echo "void b(void) { fputs(\"\", stderr); }" >>"$tree/src/base/a.c" && expect "[print]"
fresh && echo "void b(void) { exit(1); }" >>"$tree/src/base/a.c" && expect "[exit]"
fresh && echo "double b(const char *x) { return strtod(x, 0); }" >>"$tree/src/base/a.c" && expect "[locale]"
fresh && echo "int b(const char *x) { return strcasecmp(x, x); }" >>"$tree/src/base/a.c" && expect "[locale]"
fresh && echo "void b(char *x) { snprintf(x, 9, \"%s\" \"%-8.3f\", x, 1.0); }" >>"$tree/src/base/a.c" && expect "[locale]"
fresh && echo "int b(char *x) { float y; return sscanf(x, \"%f\", &y); }" >>"$tree/src/base/a.c" && expect "[locale]"
fresh && echo "int b(char *x) { int y; return sscanf(x, \"%d of 5%% free\", &y) + tt_snprintf(x, 9, \"%f\", 1.0); }" >>"$tree/src/base/a.c" && expect
fresh && echo "static const char name[] = \"/tmp/a-XXXXXX\";" >>"$tree/tests/ops/add.c" && expect "[temporary]"
fresh && echo "static int counter;" >>"$tree/src/base/a.c" && expect "counter outlives"
fresh && echo "static const char *word = 0;" >>"$tree/src/base/a.c" && expect "word outlives"
fresh && echo "void b(void) { static int calls; calls++; }" >>"$tree/src/base/a.c" && expect "calls outlives"
fresh && echo "static struct { int x; } state;" >>"$tree/src/base/a.c" && expect "state outlives"
fresh && echo 'const char *b(void) { return getenv("A"); }' >>"$tree/src/base/a.c" && expect "[environment]"
fresh && echo 'const char *b(void) { return getenv("A"); }' >>"$tree/tests/ops/add.c" && expect
fresh && echo "void b(void) {" >>"$tree/src/base/a.c" && expect "[braces]"
fresh && printf 'int\n    count; /* of all */\n' >>"$tree/src/base/a.h" && expect "[split]"
fresh && printf '/* Of a rank: its bytes. */\n' >>"$tree/src/base/a.h" && expect "[beginning]"
fresh && printf '/* Office hours, of a rank. */\nint x; /* of a rank */\n' >>"$tree/src/base/a.h" && expect
fresh && printf 'struct b {\n    int x; /* one */\n    int y; /* two */\n};\n' >>"$tree/src/base/a.h" && expect
fresh && printf 'int %080d(int x,\n      int y_%020d); /* long */\n' 1 1 >>"$tree/src/base/a.h" && expect
fresh && echo "void tt_b(void);" >>"$tree/src/base/a.h" && expect "nobody calls tt_b"
fresh && echo "void tt_b(void);" >>"$tree/src/base/a.h" && echo "void c(void) { tt_b(); }" >>"$tree/tests/ops/add.c" && expect
fresh && echo "static inline int tt_b(void) { return 1; }" >>"$tree/src/base/a.h" && expect "nobody calls tt_b"
fresh && echo '| `b` |' >"$tree/src/base/MAP.md" && expect "src/base/MAP.md does not name it"
fresh && echo '| `a`, `in/` |' >"$tree/src/base/MAP.md" && mkdir "$tree/src/base/in" && touch "$tree/src/base/in/b.h" && expect
fresh && { echo "/* Built. */"; echo "static int counter;"; } >"$tree/src/base/builder.c" && expect "counter outlives"
fresh && mkdir "$tree/src/base/build" && echo "// TO""DO: later" >"$tree/src/base/build/a.c" && expect
fresh && echo "void b(void);" >"$tree/src/base/b.c" && expect "[subject]"
fresh && echo "void b(void);" >"$tree/src/base/b.c" && touch "$tree/src/base/b.h" && expect
fresh && echo '/* see base/gone.h */' >>"$tree/src/base/a.c" && expect "there is no base/gone.h"
fresh && echo '/* see base/a.h and sys/gone.h */' >>"$tree/src/base/a.c" && expect
circle() { # files of src/base that include each other in a circle
    local name next=$1
    for name in "$@"; do
        printf '#include "base/%s.h"\n' "$name" >"$tree/src/base/$next.h"
        printf '#include "base/%s.h"\n' "$next" >"$tree/src/base/$next.c"
        next=$name
    done
    printf '#include "base/%s.h"\n' "$1" >"$tree/src/base/$next.h"
}
fresh && circle b c d && expect
fresh && circle b c d e && expect "4 sources know each other in a circle, at most 3: b c d e"
fresh && circle b c d e && rm "$tree/src/base/e.h" && touch "$tree/src/base/e.h" && expect
fresh && circle b b_impl c c_impl d && expect
fresh && echo "OP(mul)" >>"$tree/src/backend/ops.def" && expect "mul has no test"
fresh && echo "global src/base/a.c:counter 0 once needed" >"$tree/tools/tidy-exceptions.txt" && expect "not needed any more"
fresh && echo "global src/base/a.c:counter 0 a reason" >"$tree/tools/tidy-exceptions.txt" &&
    echo "static int counter;" >>"$tree/src/base/a.c" && expect
fresh && echo "file src/base/a.c 900 a reason" >"$tree/tools/tidy-exceptions.txt" &&
    lines 650 | sed 's/^/\/\/ /' >>"$tree/src/base/a.c" && expect "lower it"
fresh && echo '#include "cli/a.h"' >>"$tree/src/base/a.c" && touch "$tree/src/cli/a.h" && expect "base may not include cli"
fresh && echo 'new: base/a.h' >>"$tree/tools/floors.txt" && mkdir "$tree/src/new" && touch "$tree/src/base/b.h" &&
    printf '/* New. */\n#include "base/a.h"\n' >"$tree/src/new/b.c" && expect && echo '#include "base/b.h"' >>"$tree/src/new/b.c" &&
    expect "new may not include base (\"base/b.h\")"
fresh && echo '#include "a.h"' >>"$tree/src/base/a.c" && expect "there is no src/a.h"
fresh && mkdir "$tree/src/new" && touch "$tree/src/new/b.c" && expect "src/new has no row"
fresh && echo "new: cli late" >>"$tree/tools/floors.txt" && expect "names late, which has no row"
fresh && printf 'base: cli\ncli:\n' >"$tree/tools/floors.txt" && expect "is not below it"
fresh && mkdir "$tree/src/base/inner" && printf '/* Inner. */\n#include "base/a.h"\n' >"$tree/src/base/inner/c.c" && expect
printf 'base/inner:\nbase: base/inner\nbackend: base\ncli: base backend\n' >"$tree/tools/floors.txt" && expect "base/inner may not include base"
exit $failed
