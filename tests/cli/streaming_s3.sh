#!/usr/bin/env bash
# streaming from s3://: by ranges, with the bits of local files, through connections that break and objects that change.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
source "$root/tests/tools/s3.sh"
for i in $(seq 2000); do echo "{\"prompt\": \"$i =\", \"completion\": \" $((i % 7))$((i * i % 101))\", \"beside\": \"$(printf '%02000d' 0)\"}"; done >rows/train.jsonl
head -n 100 rows/train.jsonl | gzip >rows/train.jsonl.gz
control load "folder=$folder" >/dev/null
far=(train --model_name_or_path base --device cpu --threads 1 --cpu_isa portable --learning_rate 1e-2 --lora_dropout 0 --report_to none
    --streaming true --max_steps 90 --per_device_train_batch_size 32 --buffer_size 100 --save_strategy steps --save_steps 30)
same_result() { cmp -s "$1/adapter_model.safetensors" "$2/adapter_model.safetensors" || fail "$1 and $2 differ"; }
expect 0 "training data: 1 file" "${far[@]}" --dataset_name rows/train.jsonl --output_dir local
control fault "match=GET.*train.jsonl&do=cut&times=2"
control fault "match=GET.*train.jsonl&do=503&times=1"
expect 0 "done: 90 steps" "${far[@]}" --dataset_name s3://bucket/rows/train.jsonl --output_dir far
same_result local far
expect 0 "done: 2 steps" "${far[@]}" --max_steps 2 --dataset_name s3://bucket/rows/train.jsonl.gz --output_dir far_packed
# The object changes while it is read, or before a resume: a clear end.
rm -rf changed && cp -r far changed && rm -rf changed/checkpoint-90 changed/*.json changed/adapter_model.safetensors
sed -i '2000s/=/-/' rows/train.jsonl && control load "folder=$folder" >/dev/null
expect 2 "training data was" "${far[@]}" --dataset_name s3://bucket/rows/train.jsonl --output_dir changed --resume_from_checkpoint true
finish
