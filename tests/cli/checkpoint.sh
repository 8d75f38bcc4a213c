#!/bin/bash
# checkpoint ls, verify and consolidate, on the checkpoints of a small run on three ranks, in both types of state
# dict.
source "$(dirname "$0")/../tools/command_line.sh" "$1"

cp -r "$root/tests/golden/qwen2/model" model && cp "$root"/tests/support/tiny_tokenizer/* model/ || exit 1
for i in $(seq 24); do echo "{\"prompt\": \"$i + 1 =\", \"completion\": \" $((i + 1))\"}"; done >train.jsonl
train() {
    "$trimtab" train --model_name_or_path model --dataset_name train.jsonl --output_dir "$1" --max_steps 4 --save_steps 2 \
        --ranks 3 --per_device_train_batch_size 2 --learning_rate 1e-3 --state_dict_type "$2" "${@:3}" >log 2>&1 || {
        cat log
        exit 1
    }
}
train full FULL_STATE_DICT
train sharded SHARDED_STATE_DICT

expect 0 "adapter, state in 3 files" checkpoint ls sharded
expect 0 '"ranks": 3' checkpoint ls full --json
expect 0 "sharded/checkpoint-4: whole" checkpoint verify sharded
expect 0 "full/checkpoint-2: whole" checkpoint verify full/checkpoint-2

# The result has the files of the other type of state dict, and a run resumes from it.
expect 0 "whole tensors" checkpoint consolidate sharded/checkpoint-2 --output_dir one/
cmp full/checkpoint-2/training_state.safetensors one/training_state.safetensors || fail "not the state of a whole save"
cmp full/checkpoint-2/adapter_model.safetensors one/adapter_model.safetensors || fail "not the weights"
[ -e one/training_state-00001-of-00003.safetensors ] && fail "a file of one rank was copied"
grep -q '"state_dict_type": "FULL_STATE_DICT"' one/training_state.json || fail "training_state.json says something else"
expect 0 "one: whole" checkpoint verify one
rm -rf sharded/checkpoint-4 && cp -r sharded again && rm -rf again/checkpoint-2 && mv one again/checkpoint-2
train again FULL_STATE_DICT --resume_from_checkpoint again/checkpoint-2
cmp full/adapter_model.safetensors again/adapter_model.safetensors || fail "going on from it ends elsewhere"

expect 2 "of whole tensors already" checkpoint consolidate full/checkpoint-2 --output_dir other
expect 2 "is not empty" checkpoint consolidate sharded/checkpoint-2 --output_dir full
expect 2 "needs --output_dir" checkpoint consolidate sharded/checkpoint-2
expect 2 "needs a folder" checkpoint verify
expect 2 "no operation 'frob'" checkpoint frob x
expect 3 "does not exist" checkpoint ls nowhere
expect 3 "holds no checkpoints" checkpoint verify model

# Faults: one byte of a state, a file that is too short, a missing manifest.
cp -r full bad
printf x | dd of=bad/checkpoint-2/training_state.safetensors bs=1 seek=9000 conv=notrunc 2>/dev/null
expect 3 "training_state.safetensors' is not as it was saved" checkpoint verify bad
expect 0 "whole" checkpoint ls bad # sizes only
truncate -s -4 bad/checkpoint-4/adapter_model.safetensors
expect 0 "BROKEN: 'bad/checkpoint-4/adapter_model.safetensors'" checkpoint ls bad
expect 3 "bad/checkpoint-4/adapter_model.safetensors' has" checkpoint verify bad/checkpoint-4
expect 3 "2 of 2 broken" checkpoint verify bad
rm bad/checkpoint-4/manifest.json
expect 3 "has no manifest.json" checkpoint verify bad/checkpoint-4
cp -r sharded/checkpoint-2 part && rm part/manifest.json
expect 3 "no manifest.json" checkpoint consolidate part --output_dir other
find . -name '*.consolidating' | grep -q . && fail "something unfinished is left"
[ -e other ] && fail "a folder after an error"
finish
