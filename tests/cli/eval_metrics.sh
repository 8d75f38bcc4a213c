#!/usr/bin/env bash
# eval prints the metrics of the objective by TRL's names, with the values of an evaluation during training.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
cp -r "$root/tests/golden/qwen2/model" model && cp "$root"/tests/support/tiny_tokenizer/* model/ && chmod -R u+w model
for i in $(seq 16); do echo "{\"prompt\": \"$i + 1 =\", \"completion\": \" $((i + 1))\"}"; done >rows.jsonl
common=(--model_name_or_path model --eval_dataset rows.jsonl --bf16 false)
expect 0 'done: 2 steps' train "${common[@]}" --dataset_name rows.jsonl --max_steps 2 --report_to none --eval_strategy steps \
    --eval_steps 2 --output_dir out
# value FILE KEY: the number of a key of a JSON object, to six digits.
value() { LC_ALL=C awk -v key="\"$2\":" '{ at = index($0, key); if (at == 0) next; printf "%.6f\n", substr($0, at + length(key)); exit }' "$1"; }
expect 0 '"loss"' eval "${common[@]}" --adapter_name_or_path out --json
cp printed result.json
for name in loss entropy mean_token_accuracy; do
    wanted=$(value out/eval_results.json eval_$name)
    [ -n "$wanted" ] && [ "$(value result.json $name)" = "$wanted" ] || fail "$name is $(value result.json $name), not $wanted"
done
expect 0 "" eval "${common[@]}" --adapter_name_or_path out
grep -qx "entropy         $(value result.json entropy)" printed || fail "no entropy in the table:" "$(cat printed)"
[ "$(grep -cE '^(loss|perplexity|token accuracy|entropy) +[0-9]' printed)" -eq 4 ] || fail "other rows:" "$(cat printed)"
grep -q mean_token_accuracy printed && fail "the token accuracy stands in the table twice"
finish
