#!/bin/bash
# Every command that takes a model, an adapter or a data set finds it by its name in the hub's local cache. For a
# missing one the hint is the command that downloads or exports it.
source "$(dirname "$0")/../tools/command_line.sh" "$1"

# put REPOSITORY FOLDER: copies the files of a folder into the cache, in the layout of hf download.
commit=0123456789abcdef0123456789abcdef01234567
put() {
    mkdir -p "hub/$1/blobs" "hub/$1/refs" "hub/$1/snapshots/$commit"
    printf %s $commit >"hub/$1/refs/main"
    local file hash
    for file in "$2"/*; do
        hash=$(sha256sum "$file" | cut -d' ' -f1)
        cp "$file" "hub/$1/blobs/$hash"
        ln -s "../../blobs/$hash" "hub/$1/snapshots/$commit/${file##*/}"
    done
}
cp -r "$root/tests/golden/qwen2/model" base && cp "$root"/tests/support/tiny_tokenizer/* base/
mkdir rows && printf '{"prompt": "1 +", "completion": " 1"}\n' | tee rows/test.jsonl >rows/train.jsonl
put models--some--base base
put models--some--adapter "$root/tests/golden/qwen2/adapter_random"
put datasets--some--rows rows
mkdir table && touch table/train-00000.tsv
put datasets--some--table table
mkdir columns && cp "$root/tests/golden/parquet/sums-snappy.parquet" columns/train-00000-of-00001.parquet
put datasets--some--columns columns
mkdir commas && printf 'prompt,completion\n1 + 1 =, 2\n' >commas/train-00000-of-00001.csv
put datasets--some--commas commas
export HF_HUB_CACHE=$folder/hub

train=(train --max_steps 1 --threads 1 --device cpu --model_name_or_path)
expect 0 "done: 1 step" "${train[@]}" some/base --dataset_name some/rows --output_dir out
grep -q '"base_model_name_or_path": "some/base"' out/adapter_config.json || fail "the base's name:" "$(cat out/adapter_config.json)"
cmp -s out/tokenizer.json base/tokenizer.json || fail "the tokenizer was not copied"
expect 0 "done: 1 step" "${train[@]}" some/base --dataset_name rows --output_dir later --adapter_name_or_path some/adapter
expect 0 "done: 1 step" "${train[@]}" some/base --dataset_name rows --output_dir whole --use_peft false
expect 0 "20 rows" "${train[@]}" some/base --dataset_name some/columns --output_dir columns_out
expect 0 "done: 1 step" "${train[@]}" some/base --model_revision $commit --dataset_name some/rows --eval_strategy steps \
    --output_dir commit
expect 3 "trimtab download some/base --revision v9" "${train[@]}" some/base --model_revision v9 --dataset_name rows --output_dir x
expect 0 "" eval --model some/base --adapter some/adapter --eval_dataset rows/test.jsonl
expect 0 "" generate --model some/base --adapter some/adapter --prompt hello --max_new_tokens 2
expect 0 "" plan --model some/base --adapter some/adapter --device h200
expect 0 "" merge --model some/base --adapter some/adapter --output_dir merged
expect 0 "" quantize --model some/base --output_dir quantized
expect 0 "" export gguf --model some/base --output_file base.gguf
grep -aq 'general.name.\{12\}base' base.gguf || fail "the GGUF file has another name"
expect 0 "model folder" inspect some/base
expect 0 "PEFT adapter" inspect some/adapter

# Names that are not in the cache.
expect 3 "trimtab download some/other" "${train[@]}" some/other --dataset_name rows --output_dir x
expect 3 "trimtab download some/other" "${train[@]}" base --dataset_name rows --output_dir x --adapter_name_or_path some/other
expect 3 "load_dataset('some/other', split='train').to_json('train.jsonl')" "${train[@]}" base --dataset_name some/other \
    --output_dir x
expect 0 'training data: 1 rows' "${train[@]}" base --dataset_name some/commas --output_dir commas_out
expect 2 "load_dataset('some/table', split='train')" "${train[@]}" base --dataset_name some/table --output_dir x
for command in "eval --eval_dataset rows/test.jsonl" "generate --prompt x" "plan --device h200" "quantize --output_dir x" \
    "merge --adapter some/adapter --output_dir x" "export gguf --output_file x.gguf"; do
    # shellcheck disable=SC2086
    expect 3 "trimtab download some/other" $command --model some/other
done
expect 3 "trimtab download some/other" merge --model base --adapter some/other --output_dir x
expect 3 "trimtab download some/other" inspect some/other
[ ! -e x/adapter_model.safetensors ] || fail "something was trained"
# A partial download: the error names the missing files, and the hint the command that completes it.
rm "hub/models--some--base/snapshots/$commit/model.safetensors"
expect 3 "trimtab download some/base" "${train[@]}" some/base --dataset_name rows --output_dir x
finish
