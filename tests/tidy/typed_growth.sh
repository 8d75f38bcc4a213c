#!/usr/bin/env bash
# tt_grow and tt_reserve take the address of a typed pointer to the elements and nothing else: what is not one does not
# compile.
set -euo pipefail
cd "$(dirname "$0")/../.."
compiler=${CC:-cc}
command -v "$compiler" >/dev/null || { echo "skipped: there is no $compiler"; exit 77; }
failed=0
# compiles EXPRESSION: the address of the elements, in a function that has some.
compiles() {
    "$compiler" -std=gnu17 -D_GNU_SOURCE -Isrc -Iinclude -Wall -Wpointer-arith -Werror -x c -fsyntax-only - <<END 2>/dev/null
#include "base/alloc.h"
struct item { double value[5]; };
struct list { struct item *items; void *untyped; struct item fixed[8]; int number; size_t count, capacity; };
tt_status grow(struct list *list);
tt_status grow(struct list *list)
{
    TT_TRY(tt_reserve($1, list->count, &list->capacity));
    return tt_grow($1, list->count, &list->capacity);
}
END
}
compiles '&list->items' || { echo "FAILED: a typed pointer does not compile"; failed=1; }
for wrong in 'list->items' '&list->untyped' '&list->fixed' '&list->number' '&list->items[0]' 'NULL'; do
    if compiles "$wrong"; then echo "FAILED: $wrong compiles"; failed=1; fi
done
exit $failed
