#!/usr/bin/env bash
# eval prints the metrics of the objective by TRL's names, with the values of an evaluation during training; of a mixture
# also for each source.
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
# A mixture: its sources have the figures that they have alone, and together those of the whole.
for i in $(seq 9); do echo "{\"prompt\": \"$i times 2 is\", \"completion\": \" $((i * 2)), of course\"}"; done >other.jsonl
mixture=(--datasets '[{"path": "rows.jsonl"}, {"path": "other.jsonl", "weight": 2}]')
model=(--model_name_or_path model --bf16 false --adapter_name_or_path out)
of_source() { sed "s/.*\"name\": \"$2\"\([^}]*\)}.*/{\1}/" "$1" >of_source.json; }
for ranks in 1 2; do
    expect 0 '"sources"' eval "${model[@]}" "${mixture[@]}" --json --ranks $ranks
    tr -d '\n' <printed >mixed.json
    for name in rows other; do
        expect 0 '' eval "${model[@]}" --eval_dataset $name.jsonl --json
        cp printed alone.json
        of_source mixed.json $name.jsonl
        for key in loss token_accuracy; do
            [ "$(value of_source.json $key)" = "$(value alone.json $key)" ] ||
                fail "$key of $name.jsonl is $(value of_source.json $key) in a mixture, not $(value alone.json $key)"
        done
        eval "tokens_$name=$(value alone.json tokens) loss_$name=$(value alone.json loss)"
        times=1 && [ $name = other ] && times=2
        [ "$(value of_source.json tokens)" = "$(awk -v n="$(value alone.json tokens)" -v t=$times 'BEGIN { printf "%.6f", n * t }')" ] ||
            fail "$name.jsonl has $(value of_source.json tokens) tokens"
    done
    # shellcheck disable=SC2154
    whole=$(LC_ALL=C awk -v a="$tokens_rows" -v x="$loss_rows" -v b="$tokens_other" -v y="$loss_other" \
        'BEGIN { printf "%.4f", (a * x + 2 * b * y) / (a + 2 * b) }')
    [ "$(value mixed.json loss | LC_ALL=C awk '{ printf "%.4f", $1 }')" = "$whole" ] || fail "the mixture's loss is not $whole"
done
expect 0 '' eval "${model[@]}" "${mixture[@]}"
grep -qE '^ +[0-9.]+ +[0-9.]+ +18 +[0-9]+  other\.jsonl$' printed || fail "no row of other.jsonl:" "$(cat printed)"
expect 2 'both given' eval "${model[@]}" "${mixture[@]}" --dataset_name rows.jsonl

# Rows held out from a mixture: each keeps its source. val_set_size is axolotl's word.
expect 0 'eval_rows.jsonl_loss' train --model_name_or_path model --bf16 false "${mixture[@]}" --max_steps 2 --report_to none \
    --eval_strategy steps --eval_steps 2 --val_set_size 0.5 --output_dir held
results=held/eval_results.json
LC_ALL=C awk -v a="$(value $results eval_rows.jsonl_tokens)" -v x="$(value $results eval_rows.jsonl_loss)" \
    -v b="$(value $results eval_other.jsonl_tokens)" -v y="$(value $results eval_other.jsonl_loss)" \
    -v whole="$(value $results eval_loss)" 'BEGIN { d = (a * x + b * y) / (a + b) - whole; exit !(a > 0 && b > 0 && d * d < 1e-9) }' ||
    fail "the sources of the held-out rows do not add up:" "$(cat $results)"
grep -q '"eval_other.jsonl_tokens": [0-9]*,' held/metrics.jsonl || fail "no tokens of a source in metrics.jsonl"
# An evaluation afterwards has the rows that the training held out.
check_held_out() {
    expect 0 '' train --model_name_or_path model --bf16 false "$@" --max_steps 2 --report_to none --overwrite_output_dir \
        --eval_strategy steps --eval_steps 2 --eval_split_size 4 --output_dir held2
    expect 0 '' eval --model_name_or_path model --bf16 false --adapter_name_or_path held2 "$@" --eval_split_size 4 --json
    LC_ALL=C awk -v a="$(value held2/eval_results.json eval_loss)" -v b="$(value printed loss)" \
        'BEGIN { d = a - b; exit !(a > 0 && d * d < 1e-11) }' ||
        fail "eval's loss of the held-out rows of $* is $(value printed loss), the training's $(value held2/eval_results.json eval_loss)"
}
check_held_out --dataset_name rows.jsonl
check_held_out "${mixture[@]}"
grep -q '"sources": \[' printed || fail "no sources of the held-out rows of a mixture:" "$(cat printed)"
# Smoothed labels change what trains and nothing of an evaluation.
for share in 0 0.5; do
    expect 0 'done: 1 step' train "${common[@]}" --dataset_name rows.jsonl --max_steps 1 --report_to none --eval_strategy steps \
        --eval_steps 1 --learning_rate 1e-12 --lora_dropout 0 --label_smoothing_factor $share --output_dir "share-$share"
done
[ "$(value share-0/eval_results.json eval_loss)" = "$(value share-0.5/eval_results.json eval_loss)" ] ||
    fail "smoothed labels change eval_loss"
[ "$(value share-0/metrics.jsonl loss)" != "$(value share-0.5/metrics.jsonl loss)" ] || fail "labels are not smoothed"

# A pair is one sample, in an evaluation of its own and in one during training.
for i in 1 2 3 4 5; do echo "{\"prompt\": \"$i + 1 =\", \"chosen\": \" $((i + 1))\", \"rejected\": \" 0\"}"; done >pairs.jsonl
pairs=(--model_name_or_path model --objective dpo --eval_dataset pairs.jsonl --bf16 false)
expect 0 '"samples": 5,' eval "${pairs[@]}" --json
expect 0 'eval_loss' train "${pairs[@]}" --dataset_name pairs.jsonl --max_steps 1 --report_to none --eval_strategy steps \
    --eval_steps 1 --output_dir paired
LC_ALL=C awk -v s="$(value paired/eval_results.json eval_runtime)" -v r="$(LC_ALL=C awk '/samples_per_second/ { print $2 + 0 }' paired/eval_results.json)" \
    'BEGIN { n = s * r; exit !(n > 4.9 && n < 5.1) }' || fail "another number of pairs a second:" "$(cat paired/eval_results.json)"
finish
