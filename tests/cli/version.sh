#!/usr/bin/env bash
# `version` names the parts that this build has, as the loader sees them; `--version` is one line for scripts.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
"$trimtab" version >said || fail "version"
[ "$(head -n 1 said)" = "$("$trimtab" --version)" ] && [ "$("$trimtab" -V | wc -l)" = 1 ] || fail "not the same version: $(cat said)"
command -v ldd >/dev/null || { echo "skipped: no ldd"; exit 77; }
ldd "$trimtab" >loaded
# part NAME FILE: it is there when the program needs the library
part() {
    local built
    built=$(sed -nE "s/^  $1  +(.*)/\\1/p" said)
    if grep -q "$2" loaded; then
        [ -n "$built" ] && [ "$built" != none ] || fail "$1 is built, and said to be '$built'"
    else
        [ "$built" = none ] || fail "$1 is not built, and said to be '$built'"
    fi
}
part MPI libmpi
part JPEG libjpeg
part PNG libspng
grep -qE '^  plots as PNG  +(none|cairo 1\.)' said || fail "plots: $(cat said)"
TRIMTAB_CUDA_PLUGIN="$folder/none.so" "$trimtab" version | grep -qE '^  CUDA plugin  +none: .*none.so' || fail "a plugin that is not there: $(cat said)"
grep -qE "^  its abi  +$("$trimtab" --version)( [0-9]+)+\$" said || fail "its abi: $(cat said)"
expect 2 'version takes no words' version now
finish
