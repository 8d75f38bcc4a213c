#!/bin/bash
# Settings that cannot act as they are given: of another task or objective they are refused, in a store as well, and those
# whose needs are off are said. Files that the pods of a rendered run cannot see are refused whatever setting names them.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
unset LOCAL_RANK SLURM_STEP_ID OMPI_COMM_WORLD_SIZE PMI_SIZE PMIX_RANK
language=(train --model_name_or_path m --dataset_name d --print_config)
detection=(train --task detection --local_image_dir img --annotations a.csv --print_config)

# Of another task or objective.
expect 2 "discopop_tau is given, and the objective is sft" "${language[@]}" --discopop_tau 0.5
expect 2 "discopop_tau is given, and loss_type is sigmoid" "${language[@]}" --objective dpo --discopop_tau 0.5
expect 2 "beta is given, and the objective is sft" "${language[@]}" --beta 0.1
expect 2 "beta is given, and the task is detection" "${detection[@]}" --beta 0.3
expect 2 "objective is given, and the task is detection" "${detection[@]}" --objective sft
expect 2 "lora_r is given, and the task is detection" "${detection[@]}" --lora_r 4
expect 2 "packing is given, and the task is detection" "${detection[@]}" --packing
expect 2 "use_peft is on, and the task is detection" "${detection[@]}" --use_peft
expect 2 "load_in_4bit is given, and the task is detection" "${detection[@]}" --load_in_4bit
expect 2 "hflip is given, and the task is language" "${language[@]}" --hflip 0.5
expect 2 "image_size is given, and the task is language" "${language[@]}" --image_size 64
expect 2 "set task: detection, or leave cache_dir out (--cache_dir)" "${language[@]}" --cache_dir c
expect 2 "label_smoothing_factor is given, and the objective is dpo" "${language[@]}" --objective dpo --label_smoothing_factor 0.1
expect 2 "max_length is given, and the task is detection" eval --task detection --weights_path w --local_image_dir i --max_length 5
expect 2 "exact_match is given, and the task is detection" eval --task detection --weights_path w --local_image_dir i --exact_match
expect 2 "num_classes is given, and the task is language" plan --config_json "$root"/bench/shapes/tiny.json --num_classes 4
# A resolved file lists all settings with their defaults: it stays a file of settings.
for kind in language detection; do
    declare -n words=$kind
    "$trimtab" "${words[@]}" >$kind.yaml 2>said || fail "$kind: $(cat said)"
    "$trimtab" train --config $kind.yaml --print_config >again.yaml 2>said || fail "$kind, resolved: $(cat said)"
    grep -q "has no effect" said && fail "$kind, resolved: $(cat said)"
done
unset -n words
echo 'hflip: 0.25' >>language.yaml
sed -i '0,/^hflip:/{/^hflip:/d}' language.yaml
expect 2 "hflip is given, and the task is language" train --config language.yaml --print_config

# Whose needs are off: one line for each.
# without WORD NEED words...
without() {
    local word=$1 need=$2
    shift 2
    expect 0 "warning: $word has no effect: it needs $need (--$word)" "$@"
    [ "$(grep -c "^warning: $word " err)" = 1 ] || fail "$word: said more than once: $(cat err)"
}
without roles_to_train assistant_only_loss "${language[@]}" --roles_to_train user
without train_on_eos assistant_only_loss "${language[@]}" --train_on_eos all
without train_last_turn_only assistant_only_loss "${language[@]}" --train_last_turn_only
without packing_strategy "packing or eval_packing" "${language[@]}" --packing_strategy wrapped
without bnb_4bit_quant_type load_in_4bit "${language[@]}" --bnb_4bit_quant_type fp4
without bnb_4bit_use_double_quant load_in_4bit "${language[@]}" --bnb_4bit_use_double_quant
without quantize_moe_experts "load_in_4bit or load_in_8bit or load_in_fp8 or base_dtype fp8" "${language[@]}" \
    --quantize_moe_experts
without bnb_4bit_compute_dtype load_in_4bit "${language[@]}" --load_in_8bit --bnb_4bit_compute_dtype bfloat16
without ns_steps "optim muon" "${language[@]}" --ns_steps 6
without adjust_lr_fn "optim muon" "${language[@]}" --adjust_lr_fn match_rms_adamw
without loraplus_lr_ratio use_peft "${language[@]}" --use_peft false --loraplus_lr_ratio 16
without save_steps "save_strategy steps" "${language[@]}" --save_strategy no --save_steps 5
without save_total_limit "save_strategy other than no" "${language[@]}" --save_strategy no --save_total_limit 2
without save_only_model "save_strategy other than no" "${language[@]}" --save_strategy no --save_only_model
without metric_for_best_model "eval_strategy other than no" "${language[@]}" --metric_for_best_model mean_token_accuracy
without greater_is_better "eval_strategy other than no" "${language[@]}" --greater_is_better true
without eval_steps "eval_strategy steps" "${language[@]}" --eval_steps 5
without eval_on_start "eval_strategy other than no" "${language[@]}" --eval_on_start
without eval_dataset "eval_strategy other than no" "${language[@]}" --eval_dataset e
without eval_split_size "eval_strategy other than no" "${language[@]}" --eval_split_size 0.1
without max_eval_samples "eval_strategy other than no" "${language[@]}" --max_eval_samples 5
without eval_pictures "eval_strategy other than no" "${detection[@]}" --eval_strategy no --eval_pictures 5
without offload_params "device other than cpu" "${language[@]}" --device cpu --offload_params
without logging_steps "logging_strategy steps or eval_strategy steps" "${language[@]}" --logging_strategy no --logging_steps 5
without eval_generate_tokens eval_generate "${language[@]}" --eval_generate_tokens 5
without lora_r use_peft "${language[@]}" --use_peft false --lora_r 4
without layers_pattern "use_peft and layers_to_transform" "${language[@]}" --layers_pattern h
without adam_beta1 "optim other than sgd" "${language[@]}" --optim sgd --adam_beta1 0.5
without warmup_ratio "no warmup_steps and lr_scheduler_type other than constant" "${language[@]}" --warmup_steps 5 --warmup_ratio 0.1
without warmup_steps "lr_scheduler_type other than constant" "${language[@]}" --lr_scheduler_type constant --warmup_steps 5
without allowed_hosts "metrics_port other than -1 or dashboard" "${language[@]}" --allowed_hosts a.example
without gradient_checkpointing "recompute auto" "${language[@]}" --recompute block --gradient_checkpointing
without forward_prefetch "sharding_strategy other than NO_SHARD" "${language[@]}" --sharding_strategy NO_SHARD --forward_prefetch
without dashboard_port dashboard "${language[@]}" --dashboard_port 5
without metrics_host "metrics_port other than -1" "${language[@]}" --metrics_host 0.0.0.0
without logging_dir "report_to tensorboard or report_to all" "${language[@]}" --report_to none --logging_dir l
without resume_changed resume_from_checkpoint "${language[@]}" --resume_changed
without gemm_fused "device other than cpu" "${language[@]}" --device cpu --gemm_fused off
without max_new_tokens exact_match eval --model_name_or_path m --eval_dataset e --max_new_tokens 5 --print_config
"$trimtab" generate --model_name_or_path m --temperature 0 --top_k 5 --prompt x >out 2>err
grep -q "^warning: top_k has no effect: it needs do_sample other than false and temperature other than 0 (--top_k)$" err || fail "top_k: $(cat err)"
without cache_size cache_dir "${detection[@]}" --cache_size 1GiB
without picture_score eval_pictures "${detection[@]}" --eval_pictures 0 --picture_score 0.25
without backbone_width "no weights_path" "${detection[@]}" --weights_path w --backbone_width 32
for words in "--packing --packing_strategy wrapped" "--assistant_only_loss --roles_to_train user" "--save_steps 5" \
    "--eval_strategy steps --eval_steps 5" "--load_in_4bit --bnb_4bit_quant_type fp4" "--metrics_port 0 --metrics_host ::1" \
    "--eval_strategy steps --logging_strategy no --logging_steps 5" "--lora_r 4 --layers_to_transform 1 --layers_pattern h"; do
    read -ra given <<<"$words"
    expect 0 "" "${language[@]}" "${given[@]}"
    grep "has no effect" err && fail "$words"
done
# Of the folder: whether its weights are in FP8.
model=$root/examples/demo/model
expect 0 "warning: fp8_products has no effect: the base is not quantized" plan --config_json "$model/config.json" --fp8_products none
expect 0 "warning: fp8_blocks has no effect: the folder has no weights in FP8" plan --config_json "$model/config.json" --fp8_blocks rows
expect 0 "" plan --config_json "$model/config.json" --fp8_products none --base_dtype fp8
grep "has no effect" err && fail "products over fp8"
# accelerate's file may be for other runs too.
printf 'distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: NO_SHARD\n  fsdp_forward_prefetch: true\n' >fsdp.yaml
expect 0 "" "${language[@]}" --config_file fsdp.yaml
grep "has no effect" err && fail "accelerate's file"

# Stores: in every command, in mixtures, as words before the settings.
for words in "train --model_name_or_path m --dataset_name d --output_dir gs://b/run=gs" "train --model_name_or_path hf://m --dataset_name d=hf" \
    "eval --model_name_or_path m --eval_dataset gs://b/x=gs" "generate --model_name_or_path https://h/m --prompt x=https" \
    "generate --model_name_or_path m --prompt_file gs://b/p=gs" "chat --model_name_or_path m --adapter_name_or_path gs://b/a=gs" \
    "serve --model_name_or_path m --chat_template_path gs://b/a=gs" "plan --config_json gs://b/c.json=gs" \
    "bench train --config_json gs://b/c.json=gs" "data --model_name_or_path m --dataset_name gs://b/d=gs" \
    "merge --model_name_or_path m --adapter_name_or_path a --output_dir gs://b/o=gs" \
    "quantize --model_name_or_path m --output_dir gs://b/o=gs" "export gguf --model_name_or_path m --output_file gs://b/o=gs" \
    "detect --weights_path gs://b/w=gs" "plot runs --output gs://b/p.svg=gs" "doctor --output_dir gs://b/o=gs" \
    "render job --output_dir gs://b/o=gs" "dashboard gs://b/o=gs" "plot gs://b/o --output p.svg=gs" "profile gs://b/o=gs" \
    "checkpoint ls gs://b/o=gs" "inspect gs://b/o=gs" "train --config gs://b/sft.yaml=gs"; do
    read -ra given <<<"${words%=*}"
    expect 2 "is no path: ${words##*=}:// is not supported" "${given[@]}"
done
expect 2 "datasets 'hf://d' is no path" "${language[@]}" --datasets '[{"path": "x"}, {"path": "hf://d"}]'
printf 'datasets:\n  - path: x\n    data_files: gs://b/*.jsonl\n' >mixture.yaml
expect 2 "mixture.yaml line 1: datasets 'gs://b/*.jsonl' is no path" "${language[@]}" --config mixture.yaml
[ ! -e s3: ] || fail "a folder s3: was made"
expect 0 "" "${language[@]}" --prompt_template 'see https://x/{field}'

# Paths that pods cannot see.
pods=(--output_dir /runs/o --nodes 1 --gpus_per_node 1 --chip h200 --image a/b:1 --name d)
model=(render job --model_name_or_path /m --config_json "$root/bench/shapes/tiny.json" --volumes "m:/m:ro,runs:/runs")
images=(render job --task detection --local_image_dir /data/img --annotations /data/a.csv --class_descriptions /data/c.csv
    --volumes "d:/data:ro,runs:/runs")
expect 2 "dataset_name '/x/t.jsonl' lies in no volume of the pods" "${model[@]}" --dataset_name /x/t.jsonl "${pods[@]}"
expect 2 "datasets '/x/t.jsonl' lies in no volume of the pods" "${model[@]}" --datasets '[{"path": "/m/t.jsonl"}, {"path": "/x/t.jsonl"}]' "${pods[@]}"
for name in annotations eval_annotations class_descriptions image_labels class_hierarchy weights_path local_image_dir; do
    expect 2 "$name '/elsewhere/x.csv' lies in no volume of the pods" "${images[@]}" "--$name" /elsewhere/x.csv "${pods[@]}"
done
expect 2 "cache_dir '/data/c' lies in no volume of the pods that they may write" "${images[@]}" --cache_dir /data/c "${pods[@]}"
expect 2 "dataset_prepared_path '/m/p' lies in no volume of the pods that they may write" "${model[@]}" --dataset_name /m/t.jsonl \
    --dataset_prepared_path /m/p "${pods[@]}"
expect 2 "resume_from_checkpoint 'checkpoint-5' lies in no volume" "${model[@]}" --dataset_name /m/t.jsonl \
    --resume_from_checkpoint checkpoint-5 "${pods[@]}"
expect 0 "kind: Job" "${model[@]}" --dataset_name /m/t.jsonl --resume_from_checkpoint latest "${pods[@]}"
finish
