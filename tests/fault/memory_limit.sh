#!/bin/bash
# A run that needs more than the memory limit of its control group is refused before it allocates, and is not killed.
[[ ${TMPDIR-} != /dev/shm/* ]] || export TMPDIR=/tmp # files in memory count in the limit
source "$(dirname "$0")/../tools/command_line.sh" "$1"

name=trimtab-test-$$ group=
for file in /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max; do
    candidate=$(dirname $file)/$name
    mkdir "$candidate" 2>/dev/null || continue
    if (echo 256M >"$candidate/$(basename $file)") 2>/dev/null; then
        group=$candidate
        break
    fi
    rmdir "$candidate"
done
if [ -z "$group" ]; then
    echo "skipped: this user cannot make a control group with a memory limit"
    exit 77
fi
trap 'rmdir "$group"; rm -rf "$folder"' EXIT
run_in_group() { (echo "$BASHPID" >"$group/cgroup.procs" && exec "$@"); }
if ! run_in_group grep -q "/$name\$" /proc/self/cgroup; then
    echo "skipped: /proc/self/cgroup does not show the group"
    exit 77
fi

bench=(bench train --config_json "$root/bench/shapes/q05b.json" --device cpu --ranks 2 --threads 1)
code=0
run_in_group "$trimtab" "${bench[@]}" >said 2>&1 || code=$?
[ $code -eq 4 ] || fail "exit code $code, not 4: $(cat said)"
grep -q 'of host memory for 2 ranks on this machine, the limit of its control group is 256 MiB' said ||
    fail "another message: $(cat said)"
grep -q 'resources.limits.memory' said || fail "another hint: $(cat said)"
# A whole training, with a save of all its state, in the memory of its plan and 5 % more: for the program, the row and what
# the kernel keeps of files; with 5 % less it is refused.
mkdir model && cp "$root/bench/shapes/l30m.json" model/config.json
for i in $(seq 8); do echo "{\"input_ids\": [$(seq -s, "$i" 47 2900)]}"; done >rows.jsonl
training=(--model_name_or_path model --init random --use_peft false --dataset_name rows.jsonl --device cpu --max_length 64
    --per_device_train_batch_size 1 --report_to none)
planned=$("$trimtab" plan "${training[@]}" --json | sed -nE 's/.*"device_bytes": ([0-9]+).*"host_bytes": ([0-9]+).*/\1 + \2/p')
limit_file=$group/$(basename "$file")
percents=(95 105)
if [ "$(stat -f -c %T .)" = tmpfs ]; then
    echo "skipped: a training with 5 % more than its plan: the files of this test are in memory"
    percents=(95)
elif grep -q __asan_init "$trimtab"; then
    echo "skipped: a training with 5 % more than its plan: the address sanitizer takes memory of its own"
    percents=(95)
fi
for percent in "${percents[@]}"; do
    echo $(((planned) / 100 * percent)) >"$limit_file" || fail "no limit of $percent %"
    code=0
    run_in_group "$trimtab" train "${training[@]}" --output_dir "out.$percent" --max_steps 2 --save_steps 2 >said 2>&1 || code=$?
    [ $code -eq $((percent < 100 ? 4 : 0)) ] || fail "in $percent % of the plan's memory it ends with $code: $(tail -3 said)"
done
[ ${#percents[@]} -eq 1 ] || [ -s out.105/model.safetensors ] || fail "no model is saved"
echo 256M >"$limit_file"
# What fits runs.
run_in_group "$trimtab" bench train --config_json "$root/bench/shapes/tiny.json" --device cpu --threads 1 --sequence_length 64 \
    >said 2>&1 || fail "a small run: $(cat said)"
finish
