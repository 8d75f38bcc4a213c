#!/bin/bash
# A run that is complete and is started again, as a cluster does with a pod that was evicted after the end: it says so,
# changes no file and ends with 0, in every launch shape. Other settings or inputs, and a result that is not whole, are not
# that run.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT TRIMTAB_JOB_SECRET TRIMTAB_JOB_SECRET_FILE RUN_UID RUN_ATTEMPT
model=$root/tests/golden/llama2/model
cp "$root/tests/golden/llama2/train.jsonl" train.jsonl
chmod u+w train.jsonl
common=(train --model_name_or_path "$model" --dataset_name "$folder/train.jsonl" --max_steps 4 --per_device_train_batch_size 1
    --max_length 128 --bf16 false --threads 1 --report_to none --device cpu)
says="holds the result of this run, which is complete: 4 steps[.] There is nothing to do"
sums() { find "$1" -type f ! -name .trimtab.lock -exec md5sum {} + | sort -k 2; }

# run LOG CODE COMMAND...
run() {
    local log=$1 wanted=$2 code=0
    shift 2
    timeout 100 "$@" >"$log" 2>&1 </dev/null || code=$?
    [ $code -eq "$wanted" ] || fail "$log: ends with $code, not $wanted: $(tail -5 "$log")"
}
# again NAME OPTIONS...: a run of one process, and once more
again() {
    local name=$1
    shift
    run "$name.log" 0 "$trimtab" "${common[@]}" --output_dir "$name" "$@"
    [ -e "$name/completion.json" ] || fail "$name: no completion.json"
    sums "$name" >before
    run "$name.again" 0 "$trimtab" "${common[@]}" --output_dir "$name" "$@"
    grep -qE "$says" "$name.again" || fail "$name: $(tail -5 "$name.again")"
    sums "$name" | cmp - before || fail "$name: files have changed"
}
evaluates=(--eval_dataset "$root/tests/golden/llama2/test.jsonl" --eval_strategy steps --eval_steps 2)
[ -e "${evaluates[1]}" ] || evaluates[1]=train.jsonl
again no --save_strategy no
again no-resume --save_strategy no --resume_from_checkpoint true
again steps --save_steps 2 --resume_from_checkpoint true
again model-only --save_steps 2 --save_only_model --resume_from_checkpoint true
again best --save_strategy best --metric_for_best_model loss --load_best_model_at_end "${evaluates[@]}" --resume_from_checkpoint true
again full --use_peft false --save_strategy no --resume_from_checkpoint true
again ranks --ranks 2 --save_strategy no --resume_from_checkpoint true
again sharded --ranks 2 --state_dict_type SHARDED_STATE_DICT --save_steps 2 --resume_from_checkpoint true
again overwrites --save_strategy no --resume_from_checkpoint true --overwrite_output_dir
again json --save_strategy no --log_format json
grep -q '"event": "end".*"was_complete": true' json.again || fail "JSON: $(cat json.again)"

# Evaluations stop to improve: this run ends before its last step.
run early.log 0 "$trimtab" "${common[@]}" --output_dir early --max_steps 20 "${evaluates[@]}" --early_stopping_patience 1 \
    --metric_for_best_model loss --early_stopping_threshold 100 --save_steps 2 --resume_from_checkpoint true
run early.again 0 "$trimtab" "${common[@]}" --output_dir early --max_steps 20 "${evaluates[@]}" --early_stopping_patience 1 \
    --metric_for_best_model loss --early_stopping_threshold 100 --save_steps 2 --resume_from_checkpoint true
grep -qE "is complete: [0-9]+ steps[.] There" early.again || fail "early stop: $(tail -5 early.again)"

# Another run.
run changed 2 "$trimtab" "${common[@]}" --output_dir no --save_strategy no --learning_rate 0.5
grep -q "already holds the result of a run" changed || fail "other settings: $(cat changed)"
run changed 2 "$trimtab" "${common[@]}" --output_dir steps --save_steps 2 --resume_from_checkpoint true --learning_rate 0.5
grep -q "learning_rate was 2e-05 and is 0.5" changed || fail "other settings: $(cat changed)"
run changed 2 "$trimtab" "${common[@]}" --output_dir no --save_strategy no --save_dtype bfloat16
grep -q "already holds the result of a run" changed || fail "another type: $(cat changed)"
run anew 0 "$trimtab" "${common[@]}" --output_dir no --save_strategy no --overwrite_output_dir
grep -qE "$says" anew && fail "overwrite_output_dir does not train again"
grep -q "^done: 4 steps" anew || fail "overwrite_output_dir: $(cat anew)"
cp train.jsonl whole.jsonl
sed -i '1s/e/o/' train.jsonl
run changed 2 "$trimtab" "${common[@]}" --output_dir no --save_strategy no
run changed 2 "$trimtab" "${common[@]}" --output_dir steps --save_steps 2 --resume_from_checkpoint true
mv whole.jsonl train.jsonl

# A result that is not there, or not whole; a run that was stopped.
rm steps/adapter_model.safetensors
run lost 0 "$trimtab" "${common[@]}" --output_dir steps --save_steps 2 --resume_from_checkpoint true
grep -q "resuming from steps/checkpoint-4" lost || fail "without weights: $(cat lost)"
truncate -s -1 steps/adapter_model.safetensors
run lost 0 "$trimtab" "${common[@]}" --output_dir steps --save_steps 2 --resume_from_checkpoint true
grep -q "resuming from steps/checkpoint-4" lost || fail "with a part of the weights: $(cat lost)"
printf '{"version": ' >steps/completion.json
run lost 0 "$trimtab" "${common[@]}" --output_dir steps --save_steps 2 --resume_from_checkpoint true
grep -q "resuming from steps/checkpoint-4" lost || fail "half a file: $(cat lost)"
"$trimtab" "${common[@]}" --output_dir stopped --max_steps 100000 --save_strategy no --resume_from_checkpoint true --logging_steps 1 \
    >stopped.log 2>&1 </dev/null &
pid=$!
for ((i = 0; i < 500; i++)); do grep -q "^step 3" stopped.log && break; sleep 0.05; done
kill -TERM $pid
code=0
wait $pid || code=$?
[ $code -eq 11 ] || fail "stopped: $code"
[ -e stopped/adapter_model.safetensors ] || fail "stopped: no result of the step"
[ ! -e stopped/completion.json ] || fail "stopped, and complete"

# Killed amid its end, before completion.json was written, and without a checkpoint: it begins again where it is asked to
# resume, and is refused otherwise, as a result of a run that has ended.
again killed --save_strategy no --resume_from_checkpoint true
rm killed/completion.json
run ended 2 "$trimtab" "${common[@]}" --output_dir killed --save_strategy no --resume_from_checkpoint true
sed -i 's/"state": "ended"/"state": "running"/' killed/run.json
run ended 2 "$trimtab" "${common[@]}" --output_dir killed --save_strategy no
run begun 0 "$trimtab" "${common[@]}" --output_dir killed --save_strategy no --resume_from_checkpoint true
grep -q "^done: 4 steps" begun || fail "killed amid its end: $(cat begun)"
[ -e killed/completion.json ] || fail "killed amid its end: not complete"

# Processes: torchrun's variables; an Indexed Job whose pods share a disk, or none.
port=$((20000 + $$ % 9000))
# both LOG VARIABLE=VALUE... -- FOLDER0 FOLDER1 OPTIONS...: each process in its folder
both() {
    local log=$1 set=() rank pids=() code
    shift
    while [ "$1" != -- ]; do
        set+=("$1")
        shift
    done
    for rank in 0 1; do
        mkdir -p "${@:2+rank:1}"
        (cd "${@:2+rank:1}" && exec env "${set[@]//%/$rank}" MASTER_ADDR=127.0.0.1 MASTER_PORT=$port timeout 100 "$trimtab" \
            "${common[@]}" --save_strategy no --resume_from_checkpoint true --output_dir out "${@:4}") >"$log$rank" 2>&1 </dev/null &
        pids+=($!)
    done
    for rank in 0 1; do
        code=0
        wait "${pids[rank]}" || code=$?
        [ $code -eq 0 ] || fail "$log, rank $rank: ends with $code: $(tail -5 "$log$rank")"
    done
}
pod=(JOB_COMPLETION_INDEX=% RUN_UID=u RUN_ATTEMPT=0)
machines=(--num_machines 2 --ranks 1 --verify_inputs quick)
for shape in torchrun shared apart; do
    case $shape in
    torchrun) words=(RANK=% WORLD_SIZE=2 LOCAL_RANK=% LOCAL_WORLD_SIZE=2 -- launcher launcher) ;;
    shared) words=("${pod[@]}" -- disk disk "${machines[@]}") ;;
    apart) words=("${pod[@]}" -- node0 node1 "${machines[@]}") ;;
    esac
    both $shape "${words[@]}"
    both $shape.again "${words[@]}"
    grep -qE "$says" $shape.again0 || fail "$shape, rank 0: $(tail -5 $shape.again0)"
    grep -q "rank 1 of 2: training is complete, 4 steps" $shape.again1 || fail "$shape, rank 1: $(tail -5 $shape.again1)"
done

# The others have ended for good: a pod that comes back alone waits for them, and then knows.
# alone LOG CODE RANK RUN_UID OUTPUT [OPTION...]
alone() {
    run "$1" "$2" env JOB_COMPLETION_INDEX="$3" RUN_UID="$4" RUN_ATTEMPT=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$trimtab" \
        "${common[@]}" --save_strategy no --resume_from_checkpoint true --output_dir "$5/out" "${machines[@]}" --rendezvous_timeout 2 "${@:6}"
}
for rank in 0 1; do
    alone alone$rank 0 $rank u disk
    grep -q "the other processes did not come (.*), but 'disk/out' holds the result of this run" alone$rank || fail "alone: $(cat alone$rank)"
    alone other$rank 10 $rank v disk
    alone changed$rank 10 $rank u disk --learning_rate 0.5
done
alone apart1 10 1 u node1

if command -v mpirun >/dev/null && "$trimtab" version | grep -q '^  MPI  *MPI '; then
    flags=()
    mpirun --version 2>&1 | grep -q "Open MPI" && flags=(--oversubscribe --allow-run-as-root --bind-to none)
    export OMPI_MCA_mpi_yield_when_idle=1
    for log in mpi.first mpi.again; do
        run $log 0 mpirun "${flags[@]}" -np 2 "$trimtab" "${common[@]}" --output_dir mpi --save_strategy no --resume_from_checkpoint true
    done
    grep -qE "$says" mpi.again || fail "mpirun: $(cat mpi.again)"
fi
finish
