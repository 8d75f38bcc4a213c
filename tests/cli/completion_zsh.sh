#!/bin/bash
# Completion for zsh, in an interactive shell on a terminal of its own: of commands, of the settings of a command, of
# the words of a value; what it prints beside each.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
command -v zsh >/dev/null || { echo "skipped: there is no zsh"; exit 77; }
mkdir functions home
"$trimtab" help --zsh >functions/_trimtab || fail "help --zsh"
zsh -n functions/_trimtab || fail "zsh does not parse it"
cat >complete.zsh <<'END'
# Reads lines "LINE|TEXT": a line to complete, and text that the terminal must show after one Tab.
zmodload zsh/zpty zsh/zselect
# wait_for TEXT [TEXT]: until the shell has shown them in this order, 10 seconds at most; `shown` has what it showed.
wait_for() {
    shown=
    for ((i = 0; i < 1000; i++)) {
        while zpty -rt shell piece; do shown+=$piece; done
        [[ $shown != *"$1"*"${2-}"* ]] || return 0
        zselect -t 1
    }
    return 1
}
zpty shell zsh -f -i
zpty -w shell "stty columns 200; fpath=(${(q)PWD}/functions \$fpath); autoload -Uz compinit; compinit -u -D; setopt no_beep; PS1=rea'dy> '"
wait_for 'ready> ' || { print -r -- "no prompt: $shown"; exit 1 }
failures=0
while IFS='|' read -r line wanted; do
    zpty -n -w shell "$line"$'\t'
    wait_for "$wanted" || { print -r -- "'$line' completes without '$wanted': ${(V)shown}"; (( failures++ )) }
    zpty -n -w shell $'\C-u'"print end''over"$'\n'
    wait_for endover 'ready> ' || { print -r -- "no prompt after '$line': ${(V)shown}"; exit 1 }
done
zpty -d shell
exit $(( failures > 0 ))
END
: >rows-of-mine.jsonl
HOME=$folder/home TERM=dumb timeout 120 zsh -f complete.zsh >shown 2>&1 <<'END' || fail "$(cat shown)"
trimtab |fine-tune a model: a LoRA adapter
trimtab inspe|ct
trimtab --|the version
trimtab train --learning|_rate
trimtab train --lora_dro|pout=
trimtab train --dataset_na|me=
trimtab train --device=|cuda
trimtab merge --save_dtype bf|loat16
trimtab train --packing t|rue
trimtab train --dataset_name rows-|of-mine.jsonl
END
for command in $("$trimtab" --help | sed -nE 's/^  ([a-z]+) .*/\1/p'); do
    grep -q "^    $command)$" functions/_trimtab || fail "$command has no settings in the completion"
done
finish
