#!/usr/bin/env bash
# The room that a run needs on the disk of output_dir is checked before the first step, the tokenizer's files in each
# checkpoint included.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
if ! unshare --user --map-root-user --mount true 2>/dev/null; then
    echo "skipped: no name spaces of users and mounts"
    exit 77
fi
cp -r "$root/tests/golden/qwen2/model" model && cp "$root"/tests/support/tiny_tokenizer/* model/ && chmod -R u+w model
printf '%*s' $((4 << 20)) '' >>model/tokenizer.json
echo '{"prompt": "1 + 1 =", "completion": " 2"}' >rows.jsonl
mkdir small
cat >on_small.sh <<'END'
mount -t tmpfs -o size="$1" small small && shift && exec "$@"
END
run=("$trimtab" train --model_name_or_path model --dataset_name rows.jsonl --output_dir small/out --max_steps 3 --save_steps 1
    --report_to none)
code=0
unshare --user --map-root-user --mount bash on_small.sh 12m "${run[@]}" 2>log || code=$?
[ $code -eq 5 ] || fail "exit code $code on a small disk:" "$(cat log)"
grep -q 'and the run needs 16.* MiB: 3 checkpoints of 4.* MiB and the result' log || fail "another error:" "$(cat log)"
unshare --user --map-root-user --mount bash on_small.sh 24m "${run[@]}" 2>log || fail "a large disk:" "$(cat log)"

# Where checkpoints are small, what they have besides tensors takes the room: texts, and blocks that are not full.
cp "$root"/tests/support/tiny_tokenizer/tokenizer.json model/
many=("${run[@]}" --max_steps 40 --logging_steps 1)
code=0
unshare --user --map-root-user --mount bash on_small.sh 4m "${many[@]}" 2>log || code=$?
[ $code -eq 5 ] || fail "exit code $code of 40 small checkpoints:" "$(cat log)"
grep -q 'and the run needs .* MiB: 40 checkpoints of .* KiB and the result' log && ! grep -q '^step' log ||
    fail "40 small checkpoints do not end before the first step:" "$(cat log)"
needed=$(sed -nE 's/.*the run needs ([0-9.]+) MiB.*/\1/p' log)
kib=$(awk -v mib="$needed" 'BEGIN { printf "%d", (mib + 0.06) * 1024 }')
unshare --user --map-root-user --mount bash on_small.sh "${kib}k" "${many[@]}" 2>log || fail "$needed MiB do not suffice:" "$(cat log)"

# The log of very many steps is no reason to refuse: a warning, and the run begins.
: >log # that of the run before has such a step, until the shell of this one empties it
unshare --user --map-root-user --mount bash on_small.sh 8m "${run[@]}" --max_steps 100000000 --save_strategy no \
    --logging_steps 1 2>log &
process=$!
for ((i = 0; i < 600; i++)); do
    if grep -q '^step 3/' log || ! kill -0 $process 2>/dev/null; then break; fi
    sleep 0.1
done
kill -USR1 $process || fail "100000000 steps are refused:" "$(cat log)"
code=0
wait $process || code=$?
[ $code -eq 11 ] || fail "exit code $code of 100000000 steps:" "$(cat log)"
grep -q "^warning: .* MiB free for the log, and its 100000002 rows take up to .* GiB" log || fail "no warning:" "$(cat log)"
finish
