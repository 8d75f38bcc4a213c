#!/bin/bash
# A model and an adapter in files of torch.save give the results of the same ones as safetensors.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
golden=$root/tests/golden

cp -r "$golden/llama_sharded/model" safe && cp -r "$golden/pth/sharded" bins && chmod -R u+w safe bins || exit 1
cp "$golden/llama_sharded/model/"{config,generation_config}.json bins/
for model in safe bins; do cp "$golden"/../support/tiny_tokenizer/* $model/; done
printf '{"text": "the quick brown fox"}\n{"text": "jumps over"}\n' >rows.jsonl
for model in safe bins; do
    expect 0 "" train --model $model --dataset_name rows.jsonl --output_dir out-$model --max_steps 2 --learning_rate 1e-3 --use_cpu true
done
cmp out-safe/adapter_model.safetensors out-bins/adapter_model.safetensors || fail "training from bins differs"
expect 0 "" train --model bins --dataset_name rows.jsonl --output_dir two --max_steps 2 --learning_rate 1e-3 --use_cpu true --ranks 2
expect 0 "" train --model bins --dataset_name rows.jsonl --output_dir two --max_steps 3 --learning_rate 1e-3 --use_cpu true --ranks 2 --resume_changed true \
    --resume_from_checkpoint true

cp -r "$golden/qwen2/model" base && chmod -R u+w base && cp -r "$golden/pth/adapter" adapter && chmod u+w adapter || exit 1
cp "$golden"/../support/tiny_tokenizer/* base/
cp "$golden/qwen2/adapter_random/adapter_config.json" adapter/
expect 0 "14 of 26 tensors changed" merge --model base --adapter adapter --output_dir from-bin
expect 0 "14 of 26 tensors changed" merge --model base --adapter "$golden/qwen2/adapter_random" --output_dir from-safe
cmp from-bin/model.safetensors from-safe/model.safetensors || fail "merging the pickled adapter differs"
expect 0 "" generate --model base --adapter_name_or_path adapter --prompt "1 2" --max_new_tokens 4
finish
