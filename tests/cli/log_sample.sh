#!/usr/bin/env bash
# log_sample false: no text of the data is in the log or in the records of a run; `render` sets it unless it is given.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
cp -r "$root/tests/golden/qwen2/model" model && cp "$root"/tests/support/tiny_tokenizer/* model/ && chmod -R u+w model
for i in $(seq 8); do echo "{\"prompt\": \"my secret is $i:\", \"completion\": \" told\"}"; done >rows.jsonl
run=(train --model_name_or_path model --dataset_name rows.jsonl --eval_dataset rows.jsonl --eval_strategy steps --eval_steps 1
    --report_to none --max_steps 1)
expect 0 '  my secret is 1:[[ told' "${run[@]}" --output_dir shown
expect 0 'training data: 8 rows' "${run[@]}" --output_dir hidden --log_sample false
! grep -qE 'secret|told|first sample' printed err || fail "a row is in the log: $(cat err)"
! grep -rq 'secret is' hidden || fail "a row is in the records: $(grep -rl 'secret is' hidden)"
# The same run may show its sample on one start and hide it on the next.
expect 0 'There is nothing to do' "${run[@]}" --output_dir hidden

render=(render job --model_name_or_path /d/model --dataset_name /d/rows.jsonl --output_dir /d/out --nodes 1 --gpus_per_node 1
    --chip h200 --image a/b:1 --name demo --volumes data:/d --config_json "$root/bench/shapes/q05b.json")
expect 0 'log_sample: false' "${render[@]}"
expect 0 'log_sample: true' "${render[@]}" --log_sample true
finish
