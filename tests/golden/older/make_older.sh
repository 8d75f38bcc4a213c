#!/usr/bin/env bash
# Makes older/runs/, older/ends/ and older/prepared/: runs of an earlier version of trimtab, which later ones resume
# (e2e/older_runs.sh).
#
#     make_older.sh PROGRAM DIVIDING
#
# PROGRAM: trimtab of commit 9b698a22, a release build for processors: git worktree add --detach OLD 9b698a22;
# cmake -S OLD -B OLD/build -G Ninja -DCMAKE_BUILD_TYPE=Release -DTT_WITH_CUDA=OFF; ninja -C OLD/build trimtab
# DIVIDING: the same with what commit 2ce5d142 changed in src/backend/cpu and src/tensor: numbers are divided by their
# scale to code them in FP8, as in compressed-tensors, and no longer multiplied by its reciprocal.
#
# Each run has two ranks, goes to its end, and saves in its middle. runs/NAME: what it would have left if it had been
# killed after that save. ends/NAME: its result (DIVIDING resumes that over FP8), the rows of its log without times and
# bytes, and what the checkpoint completes (text.jsonl) and becomes when it is merged (merged.sha256). Instructions are
# the portable ones, whose results have the same bits on all processors of the architecture. prepared/: the rows that
# the run sft kept for others. inputs/ is made by make_inputs.py.
set -euo pipefail
program=$(realpath "$1") dividing=$(realpath "$2")
cd "$(dirname "$0")"
here=$PWD
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
rm -rf runs ends prepared
mkdir -p runs ends
cp -r inputs/. "$folder"
cd "$folder"
times='s/"[a-z_]*(second|runtime|tflops|bytes|time)[a-z_]*": [^,}]*(, )?//g; s/, }/}/'

# run NAME RESULT words...
run() {
    local name=$1 result=$2
    shift 2
    "$program" train --output_dir "$name" --ranks 2 --threads 1 --device cpu --cpu_isa portable --sharding_strategy FULL_SHARD \
        --max_steps 8 --save_strategy steps --save_steps 4 --eval_strategy steps --eval_steps 4 --logging_steps 1 \
        --report_to none "$@"
    mkdir -p "$here/runs/$name" "$here/ends/$name"
    cp -r "$name/checkpoint-4" "$name/trimtab_config.yaml" "$here/runs/$name/"
    if [ "$name" = fp8 ]; then
        rm -r fp8 && cp -r "$here/runs/fp8" fp8
        "$dividing" train --config fp8/trimtab_config.yaml --resume_from_checkpoint true
    fi
    cp "$name/$result" "$here/ends/$name/"
    grep -v '"event"' "$name/metrics.jsonl" | sed -E "$times" >"$here/ends/$name/rows.jsonl"
}
# complete NAME words...
complete() {
    local name=$1
    shift
    "$dividing" generate --prompt_file eval.jsonl --max_new_tokens 16 --device cpu --cpu_isa portable --threads 1 --json "$@" \
        >"$here/ends/$name/text.jsonl"
}
# combine NAME words...: of the weights alone.
combine() {
    local name=$1
    shift
    "$program" merge --model_name_or_path model --adapter_name_or_path "$name/checkpoint-4" --output_dir "$name-merged" "$@"
    (cd "$name-merged" && sha256sum model.safetensors) >"$here/ends/$name/merged.sha256"
}

text=(--model_name_or_path model --max_length 128 --dataset_name rows.jsonl --eval_dataset eval.jsonl)
lora=(--lora_r 4 --lora_alpha 8 --lora_target_modules all-linear --learning_rate 0.01)
base=(--model_name_or_path model --adapter_name_or_path)
run sft adapter_model.safetensors "${text[@]}" "${lora[@]}" --lora_dropout 0.1 --use_rslora --per_device_train_batch_size 1 \
    --gradient_accumulation_steps 2 --lr_scheduler_type cosine --warmup_ratio 0.25 --weight_decay 0.01 \
    --label_smoothing_factor 0.1 --dataset_prepared_path prepared
cp sft/completion.json "$here/ends/sft/"
run qlora adapter_model.safetensors "${text[@]}" "${lora[@]}" --load_in_4bit --bnb_4bit_use_double_quant --packing \
    --max_length 48 --per_device_train_batch_size 1 --lr_scheduler_type constant_with_warmup --warmup_steps 2 \
    --modules_to_save '["lm_head"]' --bf16 false
run fp8 adapter_model.safetensors "${text[@]}" "${lora[@]}" --base_dtype fp8 --fp8_products single --per_device_train_batch_size 2
run dpo adapter_model.safetensors "${lora[@]}" --model_name_or_path model --objective dpo --loss_type '["robust"]' \
    --label_smoothing 0.1 --beta 0.3 --dataset_name pairs.jsonl --eval_dataset pairs.jsonl --max_length 128 \
    --per_device_train_batch_size 2
run full model.safetensors "${text[@]}" --use_peft false --learning_rate 0.003 --per_device_train_batch_size 2 \
    --state_dict_type SHARDED_STATE_DICT --max_grad_norm 0.5 --train_sampling_strategy sequential
run detection model.safetensors --task detection --local_image_dir shapes/images --annotations shapes/boxes.csv \
    --validation_share 0.2 --backbone_width 1 --backbone_blocks 1 --pyramid_width 4 --image_size 64 --multiscale \
    --per_device_train_batch_size 2 --bf16 false --norm batch --sharding_strategy NO_SHARD --num_workers 1

complete sft "${base[@]}" sft/checkpoint-4
complete qlora "${base[@]}" qlora/checkpoint-4 --load_in_4bit --bnb_4bit_use_double_quant --bf16 false
complete fp8 "${base[@]}" fp8/checkpoint-4 --base_dtype fp8 --fp8_products single
complete dpo "${base[@]}" dpo/checkpoint-4
complete full --model_name_or_path full/checkpoint-4
for name in sft qlora fp8 dpo; do combine $name; done
cp -r prepared "$here/prepared"
