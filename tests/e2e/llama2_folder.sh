#!/usr/bin/env bash
# A model folder saved by transformers 5 for a Llama-2-type tokenizer (golden/llama2_folder) is trained, generated
# from, evaluated, merged and exported as GGUF. Its tokenizer_config.json has model_max_length
# 1000000000000000019884624838656.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
fixture=$root/tests/golden/llama2_folder
grep -q '1000000000000000019884624838656' "$fixture/model/tokenizer_config.json" || fail "the fixture has no such maximum"

expect 0 'result: adapter' train --model_name_or_path "$fixture/model" --dataset_name "$fixture/train.jsonl" \
    --output_dir adapter --max_steps 2 --per_device_train_batch_size 4 --lora_target_modules all-linear --bias none \
    --report_to none --torch_dtype torch.bfloat16
grep -qF '<s> The king asked number 0:[[ 0 ships will come before the night.</s>]]' err || fail "the first sample:" "$(cat err)"
ids=$(wc -w <"$fixture/first.txt")
head -n 1 "$fixture/train.jsonl" >first.jsonl
expect 0 "1 rows, $ids tokens" train --model_name_or_path "$fixture/model" --dataset_name first.jsonl --output_dir one --max_steps 1
grep -q '"entropy"' adapter/metrics.jsonl || fail "no entropy in metrics.jsonl"
cmp adapter/tokenizer_config.json "$fixture/model/tokenizer_config.json" || fail "tokenizer_config.json is another"

expect 0 '' generate --model_name_or_path "$fixture/model" --adapter_name_or_path adapter --prompt 'The king' --max_new_tokens 4
[ -s printed ] || fail "nothing is generated"
expect 0 'loss' eval --model_name_or_path "$fixture/model" --adapter_name_or_path adapter --eval_dataset "$fixture/train.jsonl"
expect 0 'tensors changed' merge --model_name_or_path "$fixture/model" --adapter_name_or_path adapter --output_dir merged
expect 0 '' generate --model_name_or_path merged --prompt 'The king' --max_new_tokens 4
expect 0 "architecture 'llama', 21 tensors" export gguf --model_name_or_path "$fixture/model" \
    --adapter_name_or_path adapter --output_file tuned.gguf --outtype f16
[ "$(head -c 4 tuned.gguf)" = GGUF ] || fail "tuned.gguf is no GGUF file"
for key in tokenizer.ggml.model tokenizer.ggml.scores tokenizer.ggml.bos_token_id tokenizer.ggml.eos_token_id; do
    grep -qaF "$key" tuned.gguf || fail "tuned.gguf has no $key"
done

# A byte-level tokenizer with an empty sequence as its normalizer, which transformers writes for a GGUF file, has
# none.
cp -r "$root/tests/golden/llama3/model" byte-level
cp "$root"/tests/golden/gguf/tokenizer/tokenizer*.json byte-level/
chmod -R u+w byte-level
expect 0 '' export gguf --model_name_or_path byte-level --output_file none.gguf
sed -i 's/"normalizer": null/"normalizer": {"type": "Sequence", "normalizers": []}/' byte-level/tokenizer.json
grep -q '"normalizers": \[\]' byte-level/tokenizer.json || fail "the normalizer is as it was"
expect 0 '' export gguf --model_name_or_path byte-level --output_file empty.gguf
cmp none.gguf empty.gguf || fail "an empty normalizer makes another file"
sed -i 's/"normalizers": \[\]/"normalizers": [{"type": "Lowercase"}]/' byte-level/tokenizer.json
expect 2 'the normalizer of a byte-level tokenizer' export gguf --model_name_or_path byte-level --output_file lower.gguf
finish
