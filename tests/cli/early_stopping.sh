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
rm out1/completion.json # as if it had been killed before its result was complete
expect 0 'early stopping after step 3 of 10' "${run[@]}" "${patient[@]}" --output_dir out1 --load_best_model_at_end true \
    --resume_from_checkpoint true
[ ! -e out1/checkpoint-4 ] || fail "a resume goes on"
expect 0 'early stopping after step 4 of 10' "${run[@]}" --early_stopping_patience 3 --early_stopping_threshold 10 --output_dir out1 \
    --load_best_model_at_end true --resume_from_checkpoint true
# A resume from an earlier checkpoint has its count, and ends as the run that was not interrupted.
expect 0 'early stopping after step 6 of 10' "${run[@]}" --early_stopping_patience 5 --early_stopping_threshold 10 --output_dir whole
cp -r whole part && rm -r part/checkpoint-[456] part/adapter_model.safetensors || exit 1
expect 0 'early stopping after step 6 of 10' "${run[@]}" --early_stopping_patience 5 --early_stopping_threshold 10 --output_dir part \
    --resume_from_checkpoint part/checkpoint-3
cmp whole/adapter_model.safetensors part/adapter_model.safetensors || fail "a resumed run has other weights"
grep -q '"early_stopping_patience_counter": 5' part/checkpoint-6/trainer_state.json || fail "another count after a resume"

# What transformers' Trainer leaves for the same settings (golden/trainer/make_stops.py). An epoch has four steps.
rows_with() { sed -n "s/.*$1.*\"step\": \([0-9]*\).*/\1/p" stop/metrics.jsonl | paste -sd,; }
state() { sed -n "s/.*\"$2\": \([a-z0-9]*\).*/\1/p" "$1/trainer_state.json" | head -n 1; }
while IFS=$'\t' read -r settings step checkpoints train evals best counter stops; do
    rm -rf stop
    words=(--logging_steps 1)
    for word in $settings; do words+=("--${word%%=*}" "${word#*=}"); done
    expect 0 "early stopping after step $step of 20" train --model_name_or_path model --dataset_name rows.jsonl \
        --eval_dataset rows.jsonl --max_steps 20 --report_to none --learning_rate 1e-2 --per_device_train_batch_size 4 \
        "${words[@]}" --early_stopping_patience 2 --early_stopping_threshold 10 --output_dir stop
    saved=$(cd stop && compgen -G 'checkpoint-*' | sed 's/checkpoint-//' | sort -n | paste -sd,)
    last=stop/checkpoint-${checkpoints##*,}
    [ "${saved:--}" = "$checkpoints" ] || fail "$settings: checkpoints $saved, not $checkpoints"
    [ "$(rows_with '"loss"')" = "$train" ] || fail "$settings: train rows $(rows_with '"loss"'), not $train"
    [ "$(rows_with '"eval_loss"')" = "$evals" ] || fail "$settings: rows $(rows_with '"eval_loss"'), not $evals"
    [ "$checkpoints" = - ] && continue
    [ "$(state stop best_global_step)" = "$best" ] || fail "$settings: best $(state stop best_global_step), not $best"
    [ "$(state "$last" early_stopping_patience_counter)" = "$counter" ] || fail "$settings: not the counter $counter"
    [ "$(state "$last" should_training_stop)" = "$stops" ] || fail "$settings: should_training_stop is not $stops"
done <"$root/tests/golden/trainer/stops.tsv"
expect 0 'done: 10 steps' "${run[@]}" --early_stopping_patience 2 --output_dir improves
grep -q 'early_stopping_patience without load_best_model_at_end' err || fail "no warning that the result is not the best"
expect 2 'early_stopping_patience needs evaluations' train --model_name_or_path model --dataset_name rows.jsonl --output_dir no \
    --early_stopping_patience 2
expect 2 'early_stopping_threshold needs early_stopping_patience' "${run[@]}" --output_dir no --early_stopping_threshold 1
finish
