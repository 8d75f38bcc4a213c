#!/usr/bin/env bash
# A terminal of 80 columns: lines are broken at words, evaluations fit one line, the last rows of a run stay after its
# bar, also of one that fails; tables fit; a warning of many plans is printed once. A pipe gets whole lines.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
command -v python3 >/dev/null || { echo "skipped: no python3" && exit 77; }
command -v script >/dev/null || { echo "skipped: no script (util-linux)" && exit 77; }
golden=$root/tests/golden/llama2
export NO_COLOR=1

# shown COMMAND...: what an 80 columns wide terminal shows of it: the last text of each line that is drawn again
shown() {
    TERM=xterm script -qec "stty cols 80 rows 50; $(printf '%q ' "$trimtab" "$@")" /dev/null </dev/null |
        sed -E 's/\r+$//; s/.*\r//; s/\x1b\[K//g' >terminal
}
# fits [PATTERN]: no line is wider than the terminal, but for those of PATTERN
fits() {
    local wide
    wide=$(grep -v -E "${1:-^$}" terminal | awk 'length($0) > 80')
    [ -z "$wide" ] || fail "lines wider than the terminal:" "$wide"
}

run=(train --model_name_or_path "$golden/model" --dataset_name "$golden/train.jsonl" --report_to none --device cpu
    --logging_steps 10)
shown "${run[@]}" --eval_dataset "$golden/train.jsonl" --eval_strategy steps --eval_steps 20 --max_steps 60 --output_dir one
fits '^  try it: '
grep -q '^  try it: trimtab generate --model_name_or_path .* --prompt' terminal || fail "a command is broken:" "$(cat terminal)"
[ "$(grep -cE '^step [246]0/60  eval_loss [0-9.]+  entropy [0-9.]+  mean_token_accuracy [0-9.]+$' terminal)" = 3 ] ||
    fail "evaluations:" "$(grep '^step' terminal)"
after=$(sed -n '/100% 60\/60/,/^done/p' terminal)
grep -qE '^ +step +loss +grad_norm +learning_rate' <<<"$after" && [ "$(grep -cE '^ +[2-6]0 +[0-9.]+ ' <<<"$after")" = 5 ] ||
    fail "no last rows after the bar:" "$after"
grep -q '^warning: .*$' terminal && grep -qE '^  handled as over-length|^  [a-z ]*over-length' terminal ||
    fail "a warning is not broken at a word:" "$(head -3 terminal)"
"$trimtab" "${run[@]}" --eval_dataset "$golden/train.jsonl" --eval_strategy steps --eval_steps 20 --max_steps 20 \
    --output_dir two >said 2>&1
grep -qE '^warning: .* longer rows are handled as over-length$' said && grep -q 'eval_samples_per_second' said &&
    ! grep -q '^ *step  *loss' said || fail "the log in a file:" "$(cat said)"

shown "${run[@]}" --learning_rate 1e30 --max_steps 40 --logging_steps 1 --output_dir three
fits
grep -B 9 '^error: ' terminal | grep -qE '^ +step +loss' || fail "no last rows before an error:" "$(cat terminal)"

plan=(plan --config_json "$root/bench/shapes/l8b.json" --sequence_length 4096 --compare)
for axes in 'device=h200,l4 per_device_train_batch_size=1,8' \
    'sharding_strategy=FULL_SHARD,NO_SHARD per_device_train_batch_size=1,8 device=h200,l4'; do
    shown "${plan[@]}" "$axes"
    fits
    grep -q 'recompute' terminal && grep -q '21.5 GiB' terminal || fail "$axes:" "$(cat terminal)"
    [ "$("$trimtab" "${plan[@]}" "$axes" 2>/dev/null | wc -l)" = $((1 + $(tr -cd '=' <<<"$axes" | wc -c) * 4 - 4)) ] ||
        fail "$axes: rows are broken in a pipe:" "$("$trimtab" "${plan[@]}" "$axes")"
done
for many in "--compare|device=h200,l4 ranks=1,2" "--max|batch|--device|h200"; do
    IFS='|' read -ra words <<<"$many"
    "$trimtab" plan --model_name_or_path "$golden/model" "${words[@]}" >said 2>&1 || fail "$many: $(cat said)"
    [ "$(grep -c '^warning' said)" = 1 ] || fail "$many: a warning of many plans is not printed once:" "$(cat said)"
done
shown doctor --output_dir three
fits
grep -qE '^ {21}[^ ]' terminal || fail "doctor's lines do not continue below themselves:" "$(cat terminal)"
[ "$("$trimtab" plan --model_name_or_path "$golden/model" --units | grep -c 'frozen$\|trainable$')" -gt 20 ] ||
    fail "rows of --units are broken in a pipe"
shown profile one --json
python3 -c 'import json; json.load(open("terminal"))' || fail "JSON is broken on a terminal:" "$(cat terminal)"
for words in "plan --model_name_or_path $golden/model --units" "plan --model_name_or_path $golden/model --max batch --device h200" \
    "plan --model_name_or_path $golden/model --details --device h200 --ranks 8" \
    "merge --model_name_or_path $golden/model --adapter_name_or_path one --output_dir merged" "profile one" "inspect one" "inspect $golden/model" "checkpoint ls one" "data --model_name_or_path $golden/model --dataset_name $golden/train.jsonl" \
    "eval --model_name_or_path $golden/model --eval_dataset $golden/train.jsonl" "train --max_length" "plan" "help"; do
    read -ra parts <<<"$words"
    shown "${parts[@]}"
    fits '^(\[\[|[0-9]+ )' # samples are not broken
done
finish
