#!/usr/bin/env bash
# Several evaluation sets: each by its name has the loss that it has alone, one of them chooses the best checkpoint, and
# names, sets and metrics that are wrong are said by name.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
cp -r "$root/tests/golden/qwen2/model" model && cp "$root"/tests/support/tiny_tokenizer/* model && chmod -R u+w model
rows() { for i in $(seq "$2" "$3"); do echo "{\"prompt\": \"$i $1\", \"completion\": \" $((i % $4))\"}"; done; }
rows + 1 40 7 >train.jsonl
rows + 50 60 7 >a.jsonl
rows '*' 1 25 3 >b.jsonl
mkdir folder && cp a.jsonl folder/test.jsonl && cp b.jsonl folder/other.jsonl
train=(train --model_name_or_path model --device cpu --threads 1 --bf16 false --learning_rate 3e-2 --dataset_name train.jsonl --max_steps 12
    --per_device_train_batch_size 4 --eval_strategy steps --eval_steps 3 --save_strategy steps --save_steps 3 --report_to none)
# values RUN METRIC: those of all evaluations.
values() { grep -oE "\"$2\": [-0-9.e]+" "$1/trainer_state.json" | sed 's/.*: //'; }
near() { # near A B: lists of numbers that are the same to 1e-5
    [ -n "$1" ] && [ "$(wc -w <<<"$1")" -eq "$(wc -w <<<"$2")" ] &&
        paste <(tr ' ' '\n' <<<"$1") <(tr ' ' '\n' <<<"$2") | awk '{d = $1 - $2; if (d > 1e-5 || d < -1e-5) exit 1}'
}
expect 0 "" "${train[@]}" --eval_dataset a.jsonl --output_dir one_a
expect 0 "" "${train[@]}" --eval_dataset b.jsonl --output_dir one_b
expect 0 "eval_b_loss" "${train[@]}" --eval_dataset '{"a": "a.jsonl", "b": "b.jsonl"}' --output_dir both
for set in a b; do
    for metric in loss mean_token_accuracy; do
        near "$(values one_$set eval_$metric)" "$(values both eval_${set}_$metric)" ||
            fail "eval_${set}_$metric: $(values one_$set eval_$metric | tr '\n' ' ') and $(values both eval_${set}_$metric | tr '\n' ' ')"
    done
done
cmp -s one_a/adapter_model.safetensors both/adapter_model.safetensors || fail "evaluation sets change the result"
# From a file, with entries; packed; one set alone has its name too.
cat >sets.yaml <<'END'
eval_packing: true
packing: false
max_length: 64
eval_dataset:
  a: a.jsonl
  b: {path: folder, data_files: other.jsonl}
  c: folder
END
sed -i 's/.*/&/' train.jsonl && cp a.jsonl again.jsonl && sed -i 's/folder$/again.jsonl/' sets.yaml
expect 0 "" "${train[@]}" --config sets.yaml --output_dir packed
for set in a b; do
    near "$(values one_$set eval_loss)" "$(values packed eval_${set}_loss)" || fail "packed, $set: $(values packed eval_${set}_loss | tr '\n' ' ')"
done
near "$(values packed eval_a_loss)" "$(values packed eval_c_loss)" || fail "the same rows in two files"
expect 0 "eval_only_loss" "${train[@]}" --eval_dataset '{"only": "a.jsonl"}' --output_dir only
near "$(values one_a eval_loss)" "$(values only eval_only_loss)" || fail "one set: $(values only eval_only_loss)"
expect 0 "" "${train[@]}" --eval_dataset '{"a": "a.jsonl", "b": "b.jsonl"}' --max_eval_samples 5 --output_dir few
expect 0 "" "${train[@]}" --eval_dataset b.jsonl --max_eval_samples 5 --output_dir few_b
near "$(values few_b eval_loss)" "$(values few eval_b_loss)" || fail "max_eval_samples is of each set"

# The best checkpoint by one of them, by either spelling; a resume knows it again.
least() { values "$1" "$2" | LC_ALL=C sort -g | head -n 1; }
best() { grep -oE '"best_metric": [-0-9.e]+' "$1/trainer_state.json" | sed 's/.*: //'; }
for metric in b_loss eval_a_loss; do
    expect 0 "" "${train[@]}" --eval_dataset '{"a": "a.jsonl", "b": "b.jsonl"}' --metric_for_best_model $metric \
        --load_best_model_at_end true --output_dir best_$metric
    [ "$(best best_$metric)" = "$(least best_$metric "eval_${metric#eval_}")" ] ||
        fail "the best by $metric is $(best best_$metric) of $(values best_$metric "eval_${metric#eval_}" | tr '\n' ' ')"
done
rm -rf best_b_loss/checkpoint-12 best_b_loss/*.json best_b_loss/adapter_model.safetensors
expect 0 "" "${train[@]}" --eval_dataset '{"a": "a.jsonl", "b": "b.jsonl"}' --metric_for_best_model b_loss \
    --load_best_model_at_end true --output_dir best_b_loss --resume_from_checkpoint true
[ "$(best best_b_loss)" = "$(least best_b_loss eval_b_loss)" ] || fail "the best after a resume: $(best best_b_loss)"

# eval has them too; so have the files of a plan that render and print_config see.
expect 0 "b" eval --model_name_or_path model --device cpu --eval_dataset '{"a": "a.jsonl", "b": "b.jsonl"}' --json
expect 0 'eval_dataset: {"a": "a.jsonl"' "${train[@]}" --eval_dataset '{"a": "a.jsonl"}' --output_dir x --print_config
expect 2 "'/x/b.jsonl'" render job --model_name_or_path /m --dataset_name /m/t.jsonl --eval_strategy steps --name d \
    --eval_dataset '{"a": "/m/a.jsonl", "b": "/x/b.jsonl"}' --volumes m:/m:ro,runs:/runs --output_dir /runs/o --nodes 1 \
    --gpus_per_node 1 --chip h200 --image a/b:1

# What is wrong.
wrong() { expect "$1" "$2" "${train[@]}" --output_dir x --eval_dataset "$3" "${@:4}"; }
printf '\n' >none.jsonl
wrong 3 "duplicate key" '{"a": "a.jsonl", "a": "b.jsonl"}'
wrong 2 "has no evaluation set" '{}'
wrong 3 "none.jsonl' has no rows" '{"a": "a.jsonl", "b": "none.jsonl"}'
wrong 3 "missing.jsonl" '{"a": "a.jsonl", "b": "missing.jsonl"}'
wrong 2 "'a b' is no name of an evaluation set" '{"a b": "a.jsonl"}'
wrong 2 "'a' is neither a path or name" '{"a": 1}'
wrong 2 "has a weight" '{"a": {"path": "a.jsonl", "weight": 2}}'
wrong 2 "given twice" '{"a": "a.jsonl", "b": "a.jsonl"}'
wrong 2 "'c_loss' is not a metric" '{"a": "a.jsonl"}' --metric_for_best_model c_loss
wrong 2 "objective does not compare rows" '{"a": "a.jsonl"}' --objective dpo
finish
