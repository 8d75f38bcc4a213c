#!/bin/bash
# From rows and a model in a bucket to an adapter there: killed twice and resumed, with the bytes of a run on a disk.
# What else writes and reads there: rotation, merged models, GGUF files, evaluation, the folder of a save.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
source "$root/tests/tools/s3.sh"

expect 0 "done: 8 steps" "${train[@]}" --max_steps 8 --model_name_or_path base --dataset_name rows/train.jsonl --output_dir local
remote=("${train[@]}" --max_steps 8 --model_name_or_path s3://bucket/base --dataset_name s3://bucket/rows/train.jsonl
    --output_dir s3://bucket/run)

# killed_at STEP: starts the run, and kills it while the last file of that checkpoint is put, which the server delays.
killed_at() {
    control fault "match=PUT+/bucket/run/checkpoint-$1/manifest&do=503&times=1000"
    "$trimtab" "${remote[@]}" --resume_from_checkpoint true >killed 2>&1 </dev/null &
    local run=$!
    wait_for 100 grep -q "^PUT /bucket/run/checkpoint-$1/manifest" server/log
    kill -9 $run
    wait $run 2>/dev/null
    control fault clear=1
    control list | grep -q "^run/checkpoint-$1/adapter_model" || fail "checkpoint-$1 is not there in part"
    control list | grep -q "^run/checkpoint-$1/manifest" && fail "checkpoint-$1 is whole"
    return 0
}
killed_at 4
killed_at 8
expect 0 "done: 8 steps" "${remote[@]}" --resume_from_checkpoint true
grep -q "checkpoint-6" printed err || fail "not resumed from checkpoint-6:" "$(cat printed err)"
grep -q "taken over from process" printed err || fail "no line of the lock:" "$(cat printed err)"
for name in adapter_model.safetensors checkpoint-8/adapter_model.safetensors checkpoint-8/training_state.safetensors; do
    same "run/$name" "local/$name"
done
for name in metrics.jsonl run.json completion.json trainer_state.json checkpoint-8/manifest.json checkpoint-4/manifest.json; do
    control list | grep -qx "run/$name" || fail "there is no run/$name"
done
stored run/metrics.jsonl | grep -q '"train_loss"' || fail "the log:" "$(stored run/metrics.jsonl)"
control list | grep -E "lock|probe|saving" && fail "left in the bucket"
find tmp -type f | grep . && fail "left on this machine"

# A finished run stays one; the newest checkpoints stay.
expect 0 "complete" "${remote[@]}" --resume_from_checkpoint true
expect 0 "done: 8 steps" "${remote[@]}" --overwrite_output_dir --save_total_limit 1
[ "$(control list | grep -c '^run/checkpoint-.*/manifest')" -eq 1 ] || fail "rotation:" "$(control list)"

# Pages of lists with few names each.
control page keys=2
expect 0 "checkpoint-8" "${remote[@]}" --dataset_name "s3://bucket/r*/tr[a]in.*" --max_steps 10 --resume_from_checkpoint true
control page keys=1000

# Other commands.
s3_base=(--model_name_or_path s3://bucket/base --adapter_name_or_path s3://bucket/run)
disk_base=(--model_name_or_path base --adapter_name_or_path disk)
mkdir disk && for name in adapter_model.safetensors adapter_config.json; do stored "run/$name" >"disk/$name"; done
expect 0 "" merge "${disk_base[@]}" --output_dir merged
expect 0 "" merge "${s3_base[@]}" --output_dir s3://bucket/merged
same merged/model.safetensors merged/model.safetensors
expect 0 "" export gguf "${disk_base[@]}" --output_file model.gguf
expect 0 "" export gguf --model_name_or_path s3://bucket/merged --output_file s3://bucket/model.gguf
control list | grep -qx model.gguf || fail "no model.gguf"
expect 0 "" generate --threads 1 --device cpu "${s3_base[@]}" --prompt "1 +" --max_new_tokens 2
cp printed answer
expect 0 "" generate --threads 1 --device cpu "${disk_base[@]}" --prompt "1 +" --max_new_tokens 2
cmp -s printed answer || fail "other answers:" "$(cat answer printed)"

# Two machines: the second has no disk of the first, and writes its slices over the network to where they are put.
mkdir tmp/second
# machine RANK FOLDER OUTPUT_DIR
machine() {
    WORLD_SIZE=2 RANK=$1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port TMPDIR=$2 TRIMTAB_JOB_SECRET=$secret \
        "$trimtab" "${train[@]}" --max_steps 4 --model_name_or_path s3://bucket/base --dataset_name s3://bucket/rows/train.jsonl \
        --output_dir "$3" >"machine$1" 2>&1 </dev/null
}
secret=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
for output in s3://bucket/two two; do
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    machine 1 "$folder/tmp/second" $output &
    machine 0 "$folder/tmp" $output || fail "machine 0:" "$(cat machine0)"
    wait $! || fail "machine 1:" "$(cat machine1)"
    [ $output = two ] || grep -q "has no 's3://bucket/two' on its machine: it uses rank 0's" machine1 || fail "machine 1:" "$(cat machine1)"
done
same two/adapter_model.safetensors two/adapter_model.safetensors
same two/checkpoint-2/training_state.safetensors two/checkpoint-2/training_state.safetensors

# What cannot be there.
expect 2 "s3:// is not supported" "${remote[@]}" --dataset_prepared_path s3://bucket/prepared
expect 2 "names no bucket" "${remote[@]}" --output_dir s3://B/x
expect 3 "cannot open" "${train[@]}" --max_steps 1 --model_name_or_path base --dataset_name s3://bucket/missing.jsonl --output_dir x
expect 3 "NoSuchBucket" "${train[@]}" --max_steps 1 --model_name_or_path base --dataset_name s3://nowhere/x.jsonl --output_dir x
finish
