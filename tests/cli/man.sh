#!/bin/bash
# The manual pages: every command has one, every setting with an effect is on it, and the formatters accept them.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
"$trimtab" help --man >trimtab.1 || fail "help --man"
commands=$("$trimtab" --help | sed -nE '/^exit codes/q; s/^  ([a-z]+) .*/\1/p')
[ "$(wc -w <<<"$commands")" -ge 19 ] || fail "the commands: $commands"
for command in $commands; do
    "$trimtab" help --man "$command" >"trimtab-$command.1" || fail "help --man $command"
    grep -q "^\\\\fB$command\\\\fR$" trimtab.1 || fail "trimtab.1 has no $command"
    "$trimtab" help "$command" | sed -nE 's/^    --([a-z0-9_]+) .*/\1/p' | sort >wanted
    sed -nE 's/^\\fB\\-\\-([a-z0-9_]+)\\fR .*/\1/p' "trimtab-$command.1" | grep -vx config | sort >found
    diff wanted found >difference || fail "settings of trimtab-$command.1: $(cat difference)"
done
[ -s wanted ] || [ -s found ] || "$trimtab" help --man train | grep -q 'Environment: TRIMTAB_DETERMINISTIC' ||
    fail "trimtab-train.1 names no variable of a setting"
expect 2 "help takes one command, not 'nonsense'" help --man nonsense
expect 2 "help takes one command" help --man train eval
formatters=0
if command -v mandoc >/dev/null; then
    formatters=1
    # A date would make two builds of one version differ.
    mandoc -T lint -W warning ./*.1 | grep -v 'WARNING: missing date' >complaints
    [ ! -s complaints ] || fail "mandoc: $(head complaints)"
    mandoc -T utf8 trimtab-train.1 | col -b >page
    grep -q -- '--learning_rate N' page || fail "mandoc shows no --learning_rate N"
fi
if command -v groff >/dev/null; then
    formatters=1
    for page in *.1; do
        groff -man -Tutf8 -ww -rLL=80n "$page" >shown 2>complaints || fail "groff $page"
        [ ! -s complaints ] || fail "groff: $(head complaints)"
    done
fi
[ $formatters -eq 1 ] || echo "skipped: there is neither mandoc nor groff to try the pages with"
finish
