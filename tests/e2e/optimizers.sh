#!/bin/bash
# Moments of 8 bits through a run: their names and types in checkpoints, a resumed run, other numbers of ranks, and the
# distance of the loss from fp32 moments.
source "$(dirname "$0")/../tools/command_line.sh" "$1"

cp -r "$root/tests/golden/qwen2/model" model && cp "$root"/tests/support/tiny_tokenizer/* model/ || exit 1
for i in $(seq 96); do echo "{\"prompt\": \"$i + 1 =\", \"completion\": \" $((i + 1))\"}"; done >train.jsonl

# train FOLDER RANKS flags: 12 samples a step on any number of ranks
train() {
    "$trimtab" train --model_name_or_path model --dataset_name train.jsonl --output_dir "$1" --use_peft false --device cpu \
        --threads 1 --ranks "$2" --per_device_train_batch_size $((12 / $2)) --bf16 false --max_steps 8 --save_steps 4 \
        --logging_steps 1 --learning_rate 2e-3 --report_to none "${@:3}" >log 2>&1
}
must() {
    train "$@" || {
        cat log
        exit 1
    }
}
# of every step, one a line
losses() {
    grep -o '"loss": *[-+.0-9e]*' "$1/metrics.jsonl" | grep -o '[-+.0-9e]*$'
}
# The largest difference of two curves.
distance() {
    paste <(losses "$1") <(losses "$2") | awk '{d = $1 - $2; if (d < 0) d = -d; if (d > most) most = d} END {printf "%.9f", most}'
}
# within A B LEAST MOST
within() {
    local away
    away=$(distance "$1" "$2")
    echo "$1 and $2: $away"
    awk -v x="$away" -v least="$3" -v most="$4" 'BEGIN {exit !(x >= least && x <= most)}' ||
        fail "the loss of $1 is $away from that of $2, not $3 to $4"
}
header() {
    head -c 20000 "$1"
}

must coded 2 --optim adamw_8bit
header coded/checkpoint-8/training_state.safetensors >header
grep -qaE '"optimizer.state1.model.layers.0.mlp.down_proj.weight": *\{"dtype": *"U8"' header || fail "no codes"
grep -qaE '"optimizer.absmax2.model.layers.0.mlp.down_proj.weight": *\{"dtype": *"F32"' header || fail "no sizes"
grep -qaE '"optimizer.exp_avg.model.embed_tokens.weight": *\{"dtype": *"F32"' header || fail "embeddings are coded"
grep -qaE '"optimizer.exp_avg_sq.model.norm.weight": *\{"dtype": *"F32"' header || fail "a norm is coded"
grep -qa 'state1.model.embed_tokens' header && fail "embeddings have codes"

# A resumed run ends as if it had not stopped.
cp -r coded again && rm -rf again/checkpoint-8 again/model.safetensors
must again 2 --optim adamw_8bit --resume_from_checkpoint true
cmp coded/model.safetensors again/model.safetensors || fail "the resumed run has other weights"
cmp coded/checkpoint-8/training_state.safetensors again/checkpoint-8/training_state.safetensors || fail "another state"

# The same, by another name of the optimizer.
rm -rf again/checkpoint-8 again/model.safetensors
must again 2 --optim paged_adamw_8bit --resume_from_checkpoint true
cmp coded/model.safetensors again/model.safetensors || fail "a run resumed by another name of optim has other weights"

# Another optimizer would go on from moments that it does not have.
cp -r coded other && rm -rf other/checkpoint-8 other/model.safetensors
train other 2 --optim adamw_torch --resume_from_checkpoint true && fail "another optimizer went on"
grep -q 'optim was "adamw_8bit" and is "adamw_torch"' log || fail "the refusal does not name optim: $(cat log)"
train other 2 --optim adamw_torch --resume_from_checkpoint true --resume_changed true && fail "other moments were taken"
grep -q "has no 'optimizer.exp_avg" log && grep -q "that of another optim" log || fail "the state is not named: $(cat log)"

# The pieces of four ranks, read by three: as they are, and made whole.
must sharded 4 --optim adamw_8bit --state_dict_type SHARDED_STATE_DICT
expect 0 "whole tensors" checkpoint consolidate sharded/checkpoint-4 --output_dir one
for from in pieces whole; do
    cp -r sharded $from && rm -rf $from/checkpoint-8 $from/model.safetensors
done
rm -rf whole/checkpoint-4 && mv one whole/checkpoint-4
for from in pieces whole; do must $from 3 --optim adamw_8bit --resume_from_checkpoint true; done
cmp pieces/model.safetensors whole/model.safetensors || fail "pieces and whole tensors give other weights"
within pieces sharded 0 1e-4
within coded sharded 0 1e-4

# Paged moments are where the others are on processors.
must paged 2 --optim paged_adamw_8bit
cmp coded/model.safetensors paged/model.safetensors || fail "a paged optimizer has other weights"

# Curves of 24 steps: measured 0.00029 (AdamW) and 0.00008 (Lion).
for optim in adamw_torch adamw_8bit; do must $optim 1 --optim $optim --max_steps 24 --save_strategy no; done
for optim in lion_32bit lion_8bit; do
    must $optim 1 --optim $optim --max_steps 24 --save_strategy no --learning_rate 2e-4
done
within adamw_8bit adamw_torch 1e-9 1e-3
within lion_8bit lion_32bit 1e-9 3e-4

expect 2 "'optim' supports only: adamw_torch_fused" train --model_name_or_path model --dataset_name train.jsonl \
    --output_dir refused --optim adafactor
grep -q "write adamw_8bit, which keeps 2 bytes an element" err || fail "nothing is said to write instead: $(cat err)"
finish
