#!/bin/bash
# Completion for bash: of commands, of the settings of a command, of the words of a value.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
"$trimtab" help --bash >completion || fail "help --bash"
bash -n completion || fail "bash does not parse it"
if command -v shellcheck >/dev/null; then shellcheck -s bash completion || fail "shellcheck"; fi
# shellcheck disable=SC1091
source ./completion
# completes 'WORDS OF THE LINE' 'expected replies'
completes() {
    local wanted=$2
    # shellcheck disable=SC2034
    read -ra COMP_WORDS <<<"$1"
    [[ $1 == *' ' ]] && COMP_WORDS+=("")
    # shellcheck disable=SC2034
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _trimtab
    [ "${COMPREPLY[*]}" = "$wanted" ] || fail "'$1' completes to '${COMPREPLY[*]}' instead of '$wanted'"
}
complete -p trimtab | grep -q -- '-F _trimtab' || fail "nothing completes trimtab"
completes "trimtab tr" "train"
completes "trimtab insp" "inspect"
completes "trimtab --v" "--version"
completes "trimtab train --learning" "--learning_rate"
completes "trimtab merge --max_sh" "--max_shard_size"
completes "trimtab merge --learning" ""
completes "trimtab train --device " "auto cpu cuda"
completes "trimtab merge --save_dtype b" "bfloat16"
completes "trimtab train --packing t" "true"
completes "trimtab train --dataset_name " ""
completes "trimtab train --rdzv" "" # without effect: not offered
for command in $("$trimtab" --help | sed -nE 's/^  ([a-z]+) .*/\1/p'); do completes "trimtab $command --hel" "--help"; done
finish
