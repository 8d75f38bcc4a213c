#!/usr/bin/env bash
# shared_prompt: what a run, an evaluation and a plan say of prompts that answers share, where sharing is not exact, and that
# a run which goes on computes its prompts as it began.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
# folder_of NAME MODEL: a model folder with the byte tokenizer of golden/dpo.
folder_of() {
    mkdir "$1" && cp "$root/tests/golden/$2"/{config.json,model.safetensors} "$1" && cp "$root"/tests/golden/dpo/tokenizer/* "$1"
    chmod -R u+w "$1"
}
folder_of model llama2/model
cp "$root/tests/golden/dpo/train.jsonl" pairs.jsonl
run=(train --objective dpo --model_name_or_path model --dataset_name pairs.jsonl --report_to none --bf16 false --learning_rate 1e-2
    --logging_steps 1 --per_device_train_batch_size 4 --save_steps 2)
once='prompts are computed once for the 2 answers of a row: '
each='prompts are computed for each answer: '

# The numbers are the same; fewer tokens are computed.
expect 0 "$once" "${run[@]}" --max_steps 4 --output_dir shared --eval_dataset pairs.jsonl --eval_strategy steps --eval_steps 4
share=$(sed -n "s/.*$once\([0-9.]*\) % of its tokens.*/\1/p" err printed | head -1)
awk -v share="$share" 'BEGIN { exit !(share > 50 && share < 80) }' || fail "a share of $share %"
expect 0 "${each}shared_prompt is false" "${run[@]}" --max_steps 4 --output_dir alone --shared_prompt false --eval_dataset pairs.jsonl \
    --eval_strategy steps --eval_steps 4
names='(eval_)?(loss|grad_norm|entropy|mean_token_accuracy|(rewards|logps|logits)/[a-z]+)'
for log in shared alone; do grep -oE "\"$names\": [-0-9.e]+" "$log/metrics.jsonl" >"$log.numbers"; done
[ "$(wc -l <shared.numbers)" -gt 50 ] || fail "$(wc -l <shared.numbers) numbers"
paste -d' ' shared.numbers alone.numbers | awk '$1 != $3 { bad = 1 } { d = $2 - $4; if (d < 0) d = -d; m = $4 < 0 ? -$4 : $4; if (d > 2e-5 + 2e-5 * m) bad = 1 }
    END { exit bad }' || fail "other numbers:" "$(diff shared.numbers alone.numbers)"
for shared in true false; do
    expect 0 '' eval --objective dpo --model_name_or_path model --adapter_name_or_path shared --eval_dataset pairs.jsonl --bf16 false \
        --shared_prompt $shared --json
    grep -oE "\"$names\": [-0-9.e]+" printed >"$shared.numbers"
done
paste -d' ' true.numbers false.numbers | awk '{ d = $2 - $4; if (d < 0) d = -d; m = $4 < 0 ? -$4 : $4; if ($1 != $3 || d > 2e-5 + 2e-5 * m) bad = 1 }
    END { exit bad || NR < 8 }' || fail "evaluations differ:" "$(diff true.numbers false.numbers)"

# A run goes on as it began.
expect 0 'done: 2 steps' "${run[@]}" --max_steps 2 --output_dir before --shared_prompt false --lr_scheduler_type constant
expect 0 'done: 4 steps' "${run[@]}" --max_steps 4 --output_dir whole --shared_prompt false --lr_scheduler_type constant
cp -r before forced
expect 0 "${each}the run began so" "${run[@]}" --max_steps 4 --output_dir before --lr_scheduler_type constant --resume_from_checkpoint true
cmp before/adapter_model.safetensors whole/adapter_model.safetensors || fail "another run than the one that began unshared"
expect 2 'belongs to: shared_prompt was false and is true' "${run[@]}" --max_steps 4 --output_dir forced --lr_scheduler_type constant \
    --resume_from_checkpoint true --shared_prompt true
expect 2 'belongs to: shared_prompt was true and is false' "${run[@]}" --max_steps 8 --output_dir shared --resume_from_checkpoint true \
    --shared_prompt false
expect 0 "$once" "${run[@]}" --max_steps 8 --output_dir shared --resume_from_checkpoint true

# Where sharing is not exact, and where there is nothing to share.
no=(--max_steps 1 --output_dir none --overwrite_output_dir true)
expect 0 "${each}lora_dropout draws" "${run[@]}" "${no[@]}" --lora_dropout 0.1
expect 0 "${each}neftune_noise_alpha draws" "${run[@]}" "${no[@]}" --neftune_noise_alpha 5
expect 2 'shared_prompt is true, and would not be exact: lora_dropout draws' "${run[@]}" "${no[@]}" --lora_dropout 0.1 --shared_prompt true
expect 2 'shared_prompt is true, and objective sft has one answer for each prompt' train --model_name_or_path model --dataset_name \
    "$root/tests/golden/llama2/train.jsonl" "${no[@]}" --shared_prompt true
plan=(plan --objective dpo --device h200 --per_device_train_batch_size 4 --max_length 2048 --json)
states=$root/tests/golden/dense/qwen3_5_text
expect 0 "${each}layers of the model carry a state" "${plan[@]}" --config_json "$states/model/config.json" \
    --max_length 64 --lora_target_modules all-linear
expect 0 "${each}LongRoPE turns a prompt" "${plan[@]}" --config_json "$root/tests/golden/phi3/config_long.json" --lora_target_modules all-linear
expect 0 "prompts are computed once" "${plan[@]}" --config_json "$root/tests/golden/dense/gpt_oss/model/config.json" --max_length 64 \
    --lora_target_modules all-linear

# The plan of an 8B model: fewer tokens, less memory and time.
shape=(--config_json "$root/bench/shapes/l8b.json" --recompute none)
field() { grep -oE "\"$1\": [0-9.]+" printed | grep -oE '[0-9.]+$'; }
expect 0 "prompts are computed once for the 2 answers of a row\"" "${plan[@]}" "${shape[@]}"
seconds=$(field step_seconds) bytes=$(field device_bytes)
expect 0 "$once"'75.0 % of its tokens' "${plan[@]}" "${shape[@]}" --prompt_length 1024
awk -v a="$seconds" -v b="$(field step_seconds)" -v c="$bytes" -v d="$(field device_bytes)" \
    'BEGIN { exit !(a / b > 1.22 && a / b < 1.4 && d < 0.85 * c) }' || fail "half: $seconds s, $bytes; $(field step_seconds) s, $(field device_bytes)"
expect 0 "$once"'62.5 % of its tokens' "${plan[@]}" "${shape[@]}" --prompt_length 1536
awk -v a="$seconds" -v b="$(field step_seconds)" 'BEGIN { exit !(a / b > 1.5 && a / b < 1.7) }' || fail "three quarters: $(field step_seconds)"
expect 0 "${each}shared_prompt is false" "${plan[@]}" "${shape[@]}" --prompt_length 1024 --shared_prompt false
[ "$(field step_seconds)" = "$seconds" ] || fail "a plan without sharing: $(field step_seconds) s"
finish
