#!/bin/bash
# Help is complete and stable: every command has one, and docs/settings.md agrees with the rows.
source "$(dirname "$0")/../tools/command_line.sh" "$1"

"$trimtab" --help >"$folder/help" || fail "--help"
"$trimtab" >"$folder/plain" || fail "no words"
cmp -s "$folder/help" "$folder/plain" || fail "trimtab and trimtab --help differ"
mapfile -t commands < <(sed -nE '/^exit codes/q; s/^  ([a-z]+) .*/\1/p' "$folder/help")
[ "${#commands[@]}" -ge 21 ] && [[ " ${commands[*]} " == *" data "*" dashboard "*" version "* ]] ||
    fail "the help lists ${#commands[@]} commands:" "${commands[*]}"
for command in "${commands[@]}"; do
    "$trimtab" $command --help >"$folder/a" || fail "$command --help"
    "$trimtab" help $command >"$folder/b" || fail "help $command"
    cmp -s "$folder/a" "$folder/b" || fail "$command --help and help $command differ"
    wide=$(awk 'length($0) > 80' "$folder/a" "$folder/help")
    [ -z "$wide" ] || fail "$command --help has lines of more than 80 columns:" "$wide"
    head -1 "$folder/a" | grep -q "^usage: trimtab $command" || fail "$command --help has no usage"
done
"$trimtab" train --model x --help --nonsense >"$folder/a" || fail "--help among other flags"
grep -q -- '--learning_rate N' "$folder/a" || fail "train --help has no learning_rate"
grep -q -- '\[2e-5\]' "$folder/a" || fail "train --help does not say the default"
"$trimtab" --version | grep -qE '^trimtab [0-9]+\.[0-9]+\.[0-9]+$' || fail "--version"
"$trimtab" help --markdown >"$folder/settings.md" || fail "help --markdown"
diff -u "$root/docs/settings.md" "$folder/settings.md" >"$folder/diff" || {
    fail "docs/settings.md is out of date: trimtab help --markdown > docs/settings.md"
    head -20 "$folder/diff"
}
"$trimtab" --help >/dev/full 2>"$folder/err" && fail "a full disk is not noticed"
grep -q "No space left" "$folder/err" || fail "a full disk is not named"
finish
