#!/usr/bin/env bash
# early_stopping_patience: the run ends with its best weights after so many evaluations without an improvement, on one
# rank and on two, and a resume of it does not go on.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
cp -r "$root/tests/golden/qwen2/model" model && cp "$root"/tests/support/tiny_tokenizer/* model/ && chmod -R u+w model
for i in $(seq 16); do echo "{\"prompt\": \"$i + 1 =\", \"completion\": \" $((i + 1))\"}"; done >rows.jsonl
run=(train --model_name_or_path model --dataset_name rows.jsonl --eval_dataset rows.jsonl --max_steps 10 --report_to none
    --eval_strategy steps --eval_steps 1 --save_strategy steps --save_steps 1 --learning_rate 1e-3)
patient=(--early_stopping_patience 2 --early_stopping_threshold 10)

for ranks in 1 2; do
    expect 0 'early stopping after step 3 of 10: eval_loss has not improved in 2 evaluations' "${run[@]}" "${patient[@]}" \
        --output_dir "out$ranks" --load_best_model_at_end true --ranks $ranks
    [ -e "out$ranks/checkpoint-3" ] && [ ! -e "out$ranks/checkpoint-4" ] || fail "$ranks ranks: $(ls "out$ranks")"
    grep -q '"best_global_step": 3' "out$ranks/trainer_state.json" || fail "the best step is another"
done
expect 0 'early stopping after step 3 of 10' "${run[@]}" "${patient[@]}" --output_dir out1 --load_best_model_at_end true \
    --resume_from_checkpoint true
[ ! -e out1/checkpoint-4 ] || fail "a resume goes on"
expect 0 'early stopping after step 4 of 10' "${run[@]}" --early_stopping_patience 3 --early_stopping_threshold 10 --output_dir out1 \
    --load_best_model_at_end true --resume_from_checkpoint true
expect 0 'done: 10 steps' "${run[@]}" --early_stopping_patience 2 --output_dir improves
expect 2 'early_stopping_patience needs evaluations' train --model_name_or_path model --dataset_name rows.jsonl --output_dir no \
    --early_stopping_patience 2
expect 2 'early_stopping_threshold needs early_stopping_patience' "${run[@]}" --output_dir no --early_stopping_threshold 1
finish
