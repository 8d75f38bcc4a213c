#!/usr/bin/env bash
# Folders that are not what a setting needs: the error says what they are and what to do.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
golden=$root/tests/golden
cp -r "$golden/qwen2/model" model && cp "$root"/tests/support/tiny_tokenizer/* model/ && cp -r "$golden/qwen2/adapter_random" adapter
chmod -R u+w model adapter
ask=(generate --prompt a --max_new_tokens 1)
pointer='version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n'

expect 0 '' "${ask[@]}" --model_name_or_path model --adapter_name_or_path adapter
expect 3 "'model' is not an adapter: it has no adapter_config.json" "${ask[@]}" --model_name_or_path model --adapter_name_or_path model
expect 3 "hint: the folder contains a model" "${ask[@]}" --model_name_or_path model --adapter_name_or_path model

# An adapter whose matrices have other shapes, as that of another base model, and one that merging in Python makes usable.
cp -r adapter other && sed -i 's/"r": [0-9]*/"r": 3/' other/adapter_config.json
expect 3 "the tensors of the adapter do not match this qwen2 model" "${ask[@]}" --model_name_or_path model \
    --adapter_name_or_path other
expect 3 "was the adapter made for another base model" "${ask[@]}" --model_name_or_path model \
    --adapter_name_or_path other
cp -r adapter biased && sed -i 's/"lora_bias": false/"lora_bias": true/' biased/adapter_config.json
expect 2 "'lora_bias' is not at its default" "${ask[@]}" --model_name_or_path model --adapter_name_or_path biased
expect 2 "merge_and_unload() makes one model" "${ask[@]}" --model_name_or_path model --adapter_name_or_path biased

# A download without its large files, and a folder without the fast tokenizer.
cp -r model pointers && printf "$pointer" >pointers/tokenizer.json
expect 3 "hint: it looks like a Git LFS pointer" "${ask[@]}" --model_name_or_path pointers
cp -r model bare && rm bare/tokenizer.json
expect 3 "save_pretrained(FOLDER)" "${ask[@]}" --model_name_or_path bare
# A quantized file of llama.cpp: by its name, alone in a folder, and with the model's config.json.
mkdir quants && printf 'GGUF\3\0\0\0' >quants/m-q4_k_m.gguf
expect 3 "hint: GGUF files are written (trimtab export gguf) and not read" "${ask[@]}" --model_name_or_path quants/m-q4_k_m.gguf
expect 3 "hint: GGUF files are written" "${ask[@]}" --model_name_or_path quants
cp model/config.json model/tokenizer*.json quants/
expect 3 "--load_in_4bit true stores it in 4 bits" "${ask[@]}" --model_name_or_path quants
# Folders in FP8 with scales of blocks: one scale under another name, scales of another shape, and those of rows.
fp8() { # NAME EDIT: a copy whose file has other words of the same length
    rm -rf "$1" && cp -r "$golden/fp8/blocks" "$1" && chmod -R u+w "$1" && LC_ALL=C sed -i "$2" "$1/model.safetensors"
}
read_fp8=(eval --eval_dataset "$golden/fp8/train.jsonl")
fp8 renamed 's/up_proj.weight_scale_inv/up_proj.weight_scale_xyz/'
expect 3 "'model.layers.0.mlp.up_proj.weight' is F8_E4M3, but has no scales" "${read_fp8[@]}" --model_name_or_path renamed
fp8 shape 's/\[2,2\],"data_offsets":\[16,32\]/[4,1],"data_offsets":[16,32]/'
expect 3 "the scales 'model.layers.0.mlp.gate_proj.weight_scale_inv' do not fit" "${read_fp8[@]}" --model_name_or_path shape
expect 3 "[2, 2] for blocks of 128 x 128" "${read_fp8[@]}" --model_name_or_path shape
expect 0 '' data --dataset_name "$golden/fp8/train.jsonl" --model_name_or_path shape # reads no weights
cp -r "$golden/fp8/channel" rows && chmod -R u+w rows && sed -i 's/"strategy": "channel"/"strategy": "block"/
    s/"block_structure": null/"block_structure": [128, 128]/' rows/config.json
expect 2 "has scales of rows" "${read_fp8[@]}" --model_name_or_path rows
expect 2 "hint: --fp8_blocks rows" "${read_fp8[@]}" --model_name_or_path rows
expect 0 '' "${read_fp8[@]}" --model_name_or_path rows --fp8_blocks rows

# Weights in FP8 where only numbers train or are read; scales of a cache, which servers read, are not in the way.
expect 2 "modules_to_save has 'model.layers.0.mlp.down_proj.weight', whose weight in the folder is in FP8" train \
    --model_name_or_path "$golden/fp8/blocks" --dataset_name "$golden/fp8/train.jsonl" --output_dir out --max_steps 1 \
    --lora_target_modules q_proj --modules_to_save down_proj
if command -v python3 >/dev/null; then
    cat >edit.py <<'END'
import json, struct, sys
path, more = sys.argv[1], [json.loads(word) for word in sys.argv[2:]]
raw = open(path, "rb").read()
end = 8 + struct.unpack("<Q", raw[:8])[0]
header, data = json.loads(raw[8:end]), raw[end:]
for name, dtype, shape, code in more:
    bytes_ = bytes(code)
    for side in shape:
        bytes_ *= side
    header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(bytes_)]}
    data += bytes_
# without gaps: a tensor that was replaced leaves its bytes
parts, place = [], 0
for entry in (entry for name, entry in header.items() if name != "__metadata__"):
    part = data[slice(*entry["data_offsets"])]
    entry["data_offsets"] = [place, place + len(part)]
    parts.append(part)
    place += len(part)
text = json.dumps(header).encode()
open(path, "wb").write(struct.pack("<Q", len(text)) + text + b"".join(parts))
END
    cp -r "$golden/fp8/tensor" head && chmod -R u+w head
    python3 edit.py head/model.safetensors '["lm_head.weight", "F8_E4M3", [64, 48], [56]]' \
        '["lm_head.weight_scale", "F32", [1], [0, 0, 128, 63]]'
    expect 2 "'lm_head.weight' is in FP8, which only the linears of layers can be" "${read_fp8[@]}" \
        --model_name_or_path head
    cp -r "$golden/fp8/tensor" cache && chmod -R u+w cache
    python3 edit.py cache/model.safetensors '["model.layers.0.self_attn.k_scale", "BF16", [1], [128, 63]]' \
        '["model.layers.0.self_attn.v_scale", "BF16", [1], [128, 63]]' \
        '["model.layers.0.self_attn.q_proj.output_scale", "BF16", [1], [128, 63]]'
    expect 0 '' "${read_fp8[@]}" --model_name_or_path cache
else
    echo "skipped: weights of other tools: no python3"
fi
finish
