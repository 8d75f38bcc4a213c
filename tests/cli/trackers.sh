#!/usr/bin/env bash
# Trackers of report_to, with libraries that only record (tests/tools/fake_tracker.py) in a virtual environment: what they
# get equals the files of the run; a library or a Python that is missing; one that hangs, dies, raises, fills its disk; a
# resumed run; a run that was killed. No secret is in any file or line.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
source "$root/tests/tools/fake_trackers.sh"
cp -r "$root/tests/golden/qwen2/model" model && cp "$root"/tests/support/tiny_tokenizer/* model/ && chmod -R u+w model
for i in $(seq 16); do echo "{\"prompt\": \"$i + 1 =\", \"completion\": \" $((i + 1))\"}"; done >rows.jsonl
run=(train --model_name_or_path model --dataset_name rows.jsonl --learning_rate 1e-2 --logging_steps 1 --device cpu --run_name mine
    --lr_scheduler_type constant)

# All of them, each by its own calls; the rows are those of metrics.jsonl.
expect 0 'done: 4 steps' "${run[@]}" --max_steps 4 --output_dir plain --report_to none
expect 0 'done: 4 steps' "${run[@]}" --max_steps 4 --output_dir all --report_to "${all[@]}" tensorboard --eval_dataset rows.jsonl \
    --eval_strategy steps --eval_steps 2 --eval_generate 2 --eval_generate_tokens 4
for name in "${all[@]}"; do grep -q "$name: began run" printed err || fail "$name is not announced:" "$(cat printed err)"; done
no_secrets all
compgen -G "all/runs/*/events*" >/dev/null || fail "no TensorBoard beside the others"
cmp plain/adapter_model.safetensors all/adapter_model.safetensors || fail "trackers change the weights"
check all "${all[@]}"

# In a file, as a list; none with others; a word that is no tracker.
printf 'report_to: [wandb, mlflow]\n' >list.yaml
expect 0 'done: 2 steps' "${run[@]}" --config list.yaml --max_steps 2 --output_dir list
[ "$(cd calls && echo *)" = "mlflow.jsonl wandb.jsonl" ] || fail "a list in a file gives $(ls calls)"
[ ! -e list/runs ] || fail "TensorBoard was not named, and has files"
grep -q 'report_to: \["wandb", "mlflow"\]' list/trimtab_config.yaml || fail "the resolved list"
expect 2 "report_to names 'none' and others" "${run[@]}" --max_steps 2 --output_dir x --report_to wandb none
expect 2 "'report_to' takes one or more of: tensorboard none all wandb" "${run[@]}" --max_steps 2 --output_dir x --report_to clearml
rm -rf calls && mkdir calls

# A resumed run goes on in the same run of the tracker, and sends no row twice. A new run in the folder is another one.
expect 0 'done: 4 steps' "${run[@]}" --max_steps 4 --save_steps 4 --output_dir again --report_to "${all[@]}"
cp -r again/trackers first
expect 0 'wandb: goes on with run' "${run[@]}" --max_steps 8 --save_steps 4 --output_dir again --report_to "${all[@]}" \
    --resume_from_checkpoint true
for name in "${all[@]}"; do cmp "first/$name.json" "again/trackers/$name.json" || fail "$name has another run after the resume"; done
check again "${all[@]}" --resumed
expect 0 'wandb: began run' "${run[@]}" --max_steps 4 --output_dir again --report_to wandb --overwrite_output_dir true
cmp -s first/wandb.json again/trackers/wandb.json && fail "a new run has the identity of the old one"

# What is missing is one line.
TRIMTAB_PYTHON=$folder/bare/bin/python expect 0 'package mlflow is not installed for' "${run[@]}" --max_steps 4 --output_dir bare1 \
    --report_to mlflow
[ "$(cat printed err | grep -c mlflow)" = 1 ] || fail "not one line:" "$(grep -h mlflow printed err)"
TRIMTAB_PYTHON=$folder/no/python expect 0 'cannot be started: No such file' "${run[@]}" --max_steps 4 --output_dir bare2 --report_to wandb
[ "$(cat printed err | grep -c wandb)" = 1 ] || fail "not one line:" "$(grep -h wandb printed err)"
mkdir program && cp "$trimtab" program/
trimtab=$folder/program/trimtab expect 0 'tracker.py is not beside the program' "${run[@]}" --max_steps 4 --output_dir bare3 --report_to wandb

# A library that misbehaves changes nothing but the lines, and delays the end by tracker_seconds at most.
# misbehaves HOW 'line' [variable=value]
misbehaves() {
    local begun=$SECONDS
    FAKE_TRACKER=$1 expect 0 "$2" "${run[@]}" --max_steps 4 --output_dir "$1" --report_to wandb,mlflow --tracker_seconds 2
    cat printed err | grep -q 'done: 4 steps' || fail "$1: no end"
    [ $((SECONDS - begun)) -le 12 ] || fail "$1: the run took $((SECONDS - begun)) s"
    cmp plain/adapter_model.safetensors "$1/adapter_model.safetensors" || fail "$1: other weights"
    [ "$(wc -l <"$1/metrics.jsonl")" = "$(wc -l <plain/metrics.jsonl)" ] || fail "$1: other rows"
    no_secrets "$1"
}
misbehaves hang 'did not take the last rows within 2 s and was ended; metrics.jsonl has them all'
pgrep -f "tracker.py wandb hang" && fail "a follower that hangs is left"
misbehaves die 'its process ended by signal 9; training continues without it'
misbehaves raise 'a call failed: RuntimeError: no entry for key *** at https://***@host/x; metrics.jsonl has all rows'
misbehaves fill 'No space left on device'

# Followers of a run that was killed send the rest, say that it failed, and end.
rm -rf calls && mkdir calls
"$trimtab" "${run[@]}" --max_steps 1000000 --save_strategy no --output_dir killed --report_to wandb >printed 2>err &
process=$!
for _ in $(seq 600); do
    grep -qs '"log"' calls/wandb.jsonl && break
    sleep 0.05
done
kill -KILL $process
wait $process 2>/dev/null
for _ in $(seq 600); do
    grep -qs '"finish"' calls/wandb.jsonl && break
    sleep 0.05
done
grep -q '"finish", "words": \[\], "named": {"exit_code": 1}' calls/wandb.jsonl || fail "a killed run: $(tail -n 1 calls/wandb.jsonl) $(tail -n 3 err)"
# The last line of the file may be torn.
grep -c '"loss"' killed/metrics.jsonl >rows
[ "$(grep -c '"train/loss"' calls/wandb.jsonl)" = "$(cat rows)" ] ||
    fail "rows of a killed run: $(grep -c '"train/loss"' calls/wandb.jsonl) of $(cat rows)"
for _ in $(seq 100); do pgrep -f "tracker.py wandb $folder/killed" >/dev/null || break; sleep 0.05; done
"$trimtab" "${run[@]}" --max_steps 2 --output_dir killed --overwrite_output_dir true --report_to none >printed 2>err ||
    fail "a follower holds the folder:" "$(cat err)"
finish
