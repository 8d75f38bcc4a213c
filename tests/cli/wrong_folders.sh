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
cp -r adapter dora && sed -i 's/"use_dora": false/"use_dora": true/' dora/adapter_config.json
expect 2 "'use_dora' is not at its default" "${ask[@]}" --model_name_or_path model --adapter_name_or_path dora
expect 2 "merge_and_unload() makes one model" "${ask[@]}" --model_name_or_path model --adapter_name_or_path dora

# A download without its large files, and a folder without the fast tokenizer.
cp -r model pointers && printf "$pointer" >pointers/tokenizer.json
expect 3 "hint: it looks like a Git LFS pointer" "${ask[@]}" --model_name_or_path pointers
cp -r model bare && rm bare/tokenizer.json
expect 3 "save_pretrained(FOLDER)" "${ask[@]}" --model_name_or_path bare
finish
