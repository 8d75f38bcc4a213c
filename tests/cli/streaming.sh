#!/usr/bin/env bash
# streaming: rows that are read while they train give the same result as rows that were read before, on any number of
# ranks, packed or not, and after any kill; what is wrong with the data or the settings is said by name.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
cp -r "$root/tests/golden/qwen2/model" model && cp "$root"/tests/support/tiny_tokenizer/* model && chmod -R u+w model
for i in $(seq 3000); do echo "{\"prompt\": \"$i =\", \"completion\": \" $((i % 7))$((i * i % 101))\"}"; done >rows.jsonl
head -n 40 rows.jsonl >few.jsonl
train=(train --model_name_or_path model --device cpu --threads 1 --cpu_isa portable --learning_rate 1e-2 --lora_dropout 0
    --logging_steps 1 --save_strategy no --report_to none)
same() { cmp -s "$1/adapter_model.safetensors" "$2/adapter_model.safetensors" || fail "$1 and $2 differ"; }
differ() { ! cmp -s "$1/adapter_model.safetensors" "$2/adapter_model.safetensors" || fail "$1 and $2 are the same"; }

# In the order of the files: the bits of rows that were read before, whatever the size of a step.
in_order=(--train_sampling_strategy sequential --max_steps 20 --per_device_train_batch_size 4 --dataset_name few.jsonl)
expect 0 "done: 20 steps" "${train[@]}" "${in_order[@]}" --output_dir before
expect 0 "training data: 1 file" "${train[@]}" "${in_order[@]}" --streaming --output_dir stream
same before stream
expect 0 "" "${train[@]}" "${in_order[@]}" --dataset_streaming true --per_device_train_batch_size 1 \
    --gradient_accumulation_steps 4 --output_dir accumulated
gzip -k few.jsonl && expect 0 "" "${train[@]}" "${in_order[@]}" --streaming --dataset_name few.jsonl.gz --output_dir packed_file
same before packed_file
# One stream of tokens, cut: the bits of rows that were read before, within a window.
cut=(--packing --packing_strategy wrapped --max_length 16 --max_steps 30 --per_device_train_batch_size 1)
expect 0 "" "${train[@]}" "${in_order[@]}" "${cut[@]}" --output_dir wrapped_before
expect 0 "" "${train[@]}" "${in_order[@]}" "${cut[@]}" --streaming --output_dir wrapped
same wrapped_before wrapped

# Through the buffer: the seed and its size decide; a size of 1 is the order of the files.
shuffled=(--streaming --dataset_name rows.jsonl --per_device_train_batch_size 8 --max_steps 6)
expect 0 "" "${train[@]}" "${shuffled[@]}" --output_dir a
expect 0 "" "${train[@]}" "${shuffled[@]}" --buffer_size 1000 --output_dir b
same a b
expect 0 "" "${train[@]}" "${shuffled[@]}" --buffer_size 50 --output_dir c
expect 0 "" "${train[@]}" "${shuffled[@]}" --data_seed 9 --output_dir d
differ a c
differ a d
expect 0 "" "${train[@]}" "${shuffled[@]}" --buffer_size 1 --output_dir e
expect 0 "" "${train[@]}" "${shuffled[@]}" --train_sampling_strategy sequential --output_dir f
same e f

# Two ranks take their parts of each step: the same rows and tokens as one, and sums in another order.
tokens() { grep -o '"num_tokens": [0-9.e+]*' "$1/trainer_state.json" | tr '\n' ' '; }
expect 0 "" "${train[@]}" "${shuffled[@]}" --per_device_train_batch_size 4 --ranks 2 --output_dir two
[ "$(tokens a)" = "$(tokens two)" ] && [ -n "$(tokens a)" ] || fail "two ranks train on other rows: $(tokens a) and $(tokens two)"

# Killed in the middle, and resumed: the bits of a run that was never killed. 100 steps pass windows and epochs.
interrupt() { # interrupt NAME WORDS...: the whole run in NAME, one that is killed twice in NAME.killed
    local name=$1
    shift
    local words=("${train[@]}" --streaming --save_strategy steps --save_steps 10 --save_total_limit 3 "$@")
    expect 0 "" "${words[@]}" --output_dir "$name"
    for step in 1 2; do
        "$trimtab" "${words[@]}" --output_dir "$name.killed" --resume_from_checkpoint true >killed.out 2>&1 &
        local run=$!
        for _ in $(seq 4000); do
            [ -e "$name.killed/checkpoint-$((step * 30))" ] && break
            kill -0 $run 2>/dev/null || break
            sleep 0.025
        done
        kill -9 $run 2>/dev/null
        wait $run 2>/dev/null
        [ -d "$name.killed/checkpoint-$((step * 30))" ] || [ -e "$name.killed/adapter_model.safetensors" ] || fail "no checkpoint to kill at: $(tail -n 3 killed.out)"
    done
    expect 0 "" "${words[@]}" --output_dir "$name.killed" --resume_from_checkpoint true
    same "$name" "$name.killed"
}
interrupt plain --dataset_name rows.jsonl --per_device_train_batch_size 32 --buffer_size 100 --max_steps 100
interrupt packs --dataset_name rows.jsonl --per_device_train_batch_size 3 --buffer_size 77 --packing --max_length 64 \
    --ranks 2 --max_steps 100
interrupt cut --datasets '[{"path": "rows.jsonl", "weight": 0.4}, {"path": "few.jsonl.gz", "weight": 2}]' --packing \
    --per_device_train_batch_size 2 --packing_strategy wrapped --max_length 48 --buffer_size 30 --max_steps 100

# A file that was changed since the checkpoint, and one that is not whole: by name, and the right one goes on.
cp -r plain changed && rm -rf changed/checkpoint-100 changed/*.json changed/adapter_model.safetensors
resume=("${train[@]}" --streaming --save_strategy steps --save_steps 10 --dataset_name rows.jsonl --per_device_train_batch_size 32
    --buffer_size 100 --max_steps 100 --output_dir changed --resume_from_checkpoint true)
cp rows.jsonl whole.jsonl
sed -i '2999s/=/-/' rows.jsonl
expect 2 "training data was" "${resume[@]}"
head -n 2000 whole.jsonl >rows.jsonl
expect 2 "training data was" "${resume[@]}"
cp whole.jsonl rows.jsonl
expect 2 "buffer_size was 100 and is 101" "${resume[@]}" --buffer_size 101
expect 2 "streaming was true and is false" "${resume[@]}" --streaming false
expect 0 "" "${resume[@]}"
same plain changed

# A broken row late in the file ends the run when it is read, by its number; the checkpoint before it is whole.
sed '2500s/.*/{"prompt": 1}/' rows.jsonl >broken.jsonl
broken=("${train[@]}" --streaming --dataset_name broken.jsonl --per_device_train_batch_size 32 --buffer_size 1 --max_steps 100
    --save_strategy steps --save_steps 10 --output_dir broken)
expect 3 "broken.jsonl', row 2500 (line 2500)" "${broken[@]}"
[ -d broken/checkpoint-60 ] || fail "there is no checkpoint before the broken row"
printf '\n \n' >none.jsonl
expect 3 "none.jsonl' has no rows" "${train[@]}" --streaming --dataset_name none.jsonl --max_steps 2 --output_dir x
printf '{"text": ""}\n{"text": ""}\n' >useless.jsonl
expect 3 "useless.jsonl' has no row that can be used" "${train[@]}" --streaming --dataset_name useless.jsonl --max_steps 2 --output_dir x

# Preferences: both answers of a row stay together.
for i in $(seq 50); do echo "{\"prompt\": \"$i\", \"chosen\": \" yes $i\", \"rejected\": \" no\"}"; done >pairs.jsonl
pairs=("${train[@]}" --objective dpo --dataset_name pairs.jsonl --per_device_train_batch_size 5 --max_steps 10
    --train_sampling_strategy sequential)
expect 0 "" "${pairs[@]}" --output_dir pairs_before
expect 0 "" "${pairs[@]}" --streaming --output_dir pairs
same pairs_before pairs

# Settings that need all rows, or the length.
expect 2 "streaming needs max_steps" "${train[@]}" --streaming --dataset_name rows.jsonl --output_dir x
expect 2 "eval_split_size holds out rows of all rows" "${train[@]}" --streaming --dataset_name rows.jsonl --max_steps 2 \
    --eval_split_size 0.1 --eval_strategy steps --output_dir x
expect 2 "group_by_length sorts all rows" "${train[@]}" --streaming --dataset_name rows.jsonl --max_steps 2 \
    --train_sampling_strategy group_by_length --output_dir x
expect 0 "buffer_size has no effect: it needs streaming" "${train[@]}" --dataset_name few.jsonl --max_steps 1 --buffer_size 7 --output_dir unused
expect 0 "eval_loss" "${train[@]}" --streaming --dataset_name rows.jsonl --max_steps 2 --eval_dataset few.jsonl \
    --eval_strategy steps --output_dir evaluated
finish
