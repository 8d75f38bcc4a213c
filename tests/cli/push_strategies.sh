#!/usr/bin/env bash
# push_to_hub: whole checkpoints by hub_strategy, from which a run resumes; a stop while something is on its way; a run that
# is complete and whose push was not; a token that was a word of the command line.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
source "$root/tests/tools/hub_server.sh"
"$trimtab" download nobody/none 2>err
grep -q "needs libcurl" err && { echo "skipped: there is no libcurl"; exit 77; }
cp -r "$root/tests/golden/qwen2/model" base && cp "$root"/tests/support/tiny_tokenizer/* base
for i in $(seq 16); do echo "{\"prompt\": \"$i + 1 =\", \"completion\": \" $((i + 1))\"}"; done >rows.jsonl
run=(train --device cpu --threads 1 --model_name_or_path base --dataset_name rows.jsonl --save_steps 2 --learning_rate 1e-3
    --lr_scheduler_type constant)
push=("${run[@]}" --push_to_hub true)
export HF_TOKEN=hf_good
commits() { requests "/api/models/me/$1/commit/main"; }
expect 0 "done: 6 steps" "${run[@]}" --max_steps 6 --output_dir local

# The newest checkpoint, whole, in one folder of the repository: a run on another machine resumes from it.
expect 0 "pushed the result" "${push[@]}" --max_steps 4 --output_dir newest --hub_strategy checkpoint
there=hub_root/models/me/newest
[ "$(find $there -name 'checkpoint-*')" = "" ] || fail "a checkpoint has a folder of its own: $(find $there)"
for file in adapter_model.safetensors training_state.safetensors training_state.json manifest.json; do
    find newest/checkpoint-* -name $file -exec cmp -s {} $there/last-checkpoint/$file \; -print | grep -q . || fail "last-checkpoint/$file"
done
cmp newest/adapter_model.safetensors $there/adapter_model.safetensors || fail "the result"
expect 0 "" download me/newest --include "last-checkpoint/*"
cp -rL "$(cat printed)/last-checkpoint" checkpoint-4
expect 0 "done: 6 steps" "${run[@]}" --max_steps 6 --output_dir resumed --resume_from_checkpoint checkpoint-4
cmp local/adapter_model.safetensors resumed/adapter_model.safetensors || fail "another result from last-checkpoint"

# All of them, by their names. One that is still on its way is removed by the rotation when it has arrived.
faults "pause 1 /api/models/me/all/preupload"
expect 0 "pushed the result" "${push[@]}" --max_steps 6 --output_dir all --hub_strategy all_checkpoints --save_total_limit 1
grep -q "is not pushed: the one before it is still on its way" err printed || fail "nothing was left out: $(cat err printed)"
cmp hub_root/models/me/all/checkpoint-2/training_state.safetensors local/checkpoint-2/training_state.safetensors ||
    fail "checkpoint-2 on the hub: $(find hub_root/models/me/all)"
[ -e hub_root/models/me/all/checkpoint-2/manifest.json ] || fail "checkpoint-2 on the hub is not whole"
[ "$(find all -maxdepth 1 -name 'checkpoint-*' -printf '%f ')" = "checkpoint-6 " ] || fail "the rotation: $(find all -maxdepth 1)"

# stopped NAME TEXT OPTIONS...: starts a run, and stops it when the hub has had TEXT, which it does not answer.
stopped() {
    local name=$1 text=$2 started code=0
    shift 2
    faults "silent 9 $text"
    "$trimtab" "${push[@]}" --output_dir "$name" "$@" >"$name.out" 2>&1 </dev/null &
    local process=$!
    for _ in $(seq 600); do [ "$(requests "$text")" -gt 0 ] && break; sleep 0.1; done
    tr '\0' '\n' </proc/$process/cmdline >"$name.words"
    started=$SECONDS
    kill -TERM $process
    wait $process || code=$?
    [ $code -eq 11 ] || fail "a stop of $name ends with $code: $(cat "$name.out")"
    [ $((SECONDS - started)) -le 10 ] || fail "a stop of $name took $((SECONDS - started)) s"
    : >hub_root/faults
}
# A stop while a checkpoint is on its way: the run ends at once, with its checkpoint.
stopped midway /api/models/me/midway/preupload --max_steps 1000000 --save_steps 20 --save_total_limit 2
grep -q "is not on the hub: .*stopped on request" midway.out || fail "the checkpoint on its way: $(cat midway.out)"
grep -q "stopped on request after step" midway.out || fail "no end of the run: $(cat midway.out)"
[ "$(commits midway)" -eq 0 ] || fail "a push that was stopped made a commit"
# A stop while the result is on its way: the same command pushes it, and trains nothing; then there is nothing to do.
unset HF_TOKEN
stopped late /api/models/me/late/preupload --max_steps 4 --hub_strategy end --hub_token hf_good
export HF_TOKEN=hf_good
grep -q "the same command pushes it" late.out || fail "no remedy: $(cat late.out)"
grep -q -- "--hub_token" late.words && ! grep -q hf_good late.words || fail "the words of the process: $(cat late.words)"
cp -r late before
expect 0 "pushed the result" "${push[@]}" --max_steps 4 --hub_strategy end --output_dir late
grep -q "There is nothing to do" printed err || fail "it was trained again: $(cat printed err)"
cmp before/adapter_model.safetensors hub_root/models/me/late/adapter_model.safetensors || fail "another result was pushed"
cmp late/README.md hub_root/models/me/late/README.md || fail "the card"
grep -q "| loss in training" late/README.md || fail "the card has no results: $(cat late/README.md)"
[ "$(commits late)" -eq 1 ] || fail "commits: $(commits late)"
expect 0 "pushed the result: " "${push[@]}" --max_steps 4 --hub_strategy end --output_dir late
[ "$(commits late)" -eq 1 ] || fail "the same result was pushed twice"
# A push that failed at the end is made up for by the same command.
faults "later 9 /api/models/me/last/preupload"
expect 5 "pushing the result, which is complete in 'last'" "${push[@]}" --max_steps 2 --output_dir last --hub_strategy end
: >hub_root/faults
expect 0 "pushed the result" "${push[@]}" --max_steps 2 --output_dir last --hub_strategy end --resume_from_checkpoint true
cmp last/adapter_model.safetensors hub_root/models/me/last/adapter_model.safetensors || fail "the result is not there"
grep -rlF hf_good local newest all midway late last ./*.out ./*.words && fail "a token is in what was written"
finish
