#!/bin/bash
# From names of the hub and an empty cache to an adapter in a bucket: killed while the base is fetched and while a
# checkpoint is put, resumed both times, with the bytes of the same training from a folder into a folder.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
source "$root/tests/tools/s3.sh"
source "$root/tests/tools/hub_server.sh"
trap 'kill $server $hub_server 2>/dev/null; rm -rf "$folder"' EXIT
mkdir -p hub_root/models/some hub_root/datasets/some/rows/data
mv base hub_root/models/some/base
cp rows/train.jsonl hub_root/datasets/some/rows/data/train-00000-of-00001.jsonl
cache=$HF_HOME/hub
sum=$(sha256sum <hub_root/models/some/base/model.safetensors | cut -d' ' -f1)

options=(--threads 1 --device cpu --per_device_train_batch_size 1 --learning_rate 1e-3 --save_steps 2 --max_steps 6)
expect 0 "done: 6 steps" train --model_name_or_path hub_root/models/some/base --dataset_name hub_root/datasets/some/rows \
    --output_dir local "${options[@]}"
[ ! -e "$cache" ] || fail "the cache is not empty"
named=(train --model_name_or_path some/base --dataset_name some/rows --output_dir s3://bucket/run "${options[@]}"
    --resume_from_checkpoint true)

# killed_when COMMAND...: starts the run and kills it as soon as the command succeeds.
killed_when() {
    HF_TOKEN=hf_good "$trimtab" "${named[@]}" >>killed 2>&1 </dev/null &
    local run=$!
    wait_for 100 "$@" || { cat killed; exit 1; }
    tr '\0' '\n' </proc/$run/cmdline >>words
    kill -9 $run
    wait $run 2>/dev/null
}
faults "hang 1 /cdn/$sum"
killed_when test -s "$cache/models--some--base/blobs/$sum.incomplete"
[ ! -e "$cache/models--some--base/refs/main" ] || fail "a download that was killed is found by its name"
control list | grep "^run/.*adapter" && fail "the killed download left a result"
control fault "match=PUT+/bucket/run/checkpoint-4/manifest&do=503&times=1000"
killed_when grep -q "^PUT /bucket/run/checkpoint-4/manifest" server/log
control fault clear=1
grep -F "/cdn/$sum" hub_root/log | grep -q "range=bytes=" ||
    fail "the download did not go on where it was killed:" "$(cat hub_root/log)"
control list | grep -q "^run/checkpoint-4/adapter_model" || fail "checkpoint-4 is not there in part"
control list | grep -q "^run/checkpoint-4/manifest" && fail "checkpoint-4 is whole"
before=$(wc -l <hub_root/log)
HF_TOKEN=hf_good expect 0 "done: 6 steps" "${named[@]}"
grep -q "checkpoint-2" printed err || fail "not resumed from checkpoint-2:" "$(cat printed err)"
[ "$(wc -l <hub_root/log)" -eq "$before" ] || fail "what the cache has was asked for again:" "$(tail -n 3 hub_root/log)"
for name in adapter_model.safetensors checkpoint-6/adapter_model.safetensors checkpoint-6/training_state.safetensors; do
    same "run/$name" "local/$name"
done
control list | grep -E "lock|probe|saving" && fail "left in the bucket"
find tmp -type f | grep . && fail "left on this machine"

# No secret is in what was printed, stored, cached or in the words of a process.
mkdir seen && control dump "folder=$folder/seen"
cp -r printed err killed words server/log "$cache" seen/
for secret in hf_good secretTESTkey Signature=; do
    grep -rlaF -- "$secret" seen && fail "'$secret' is in what was written"
done
finish
