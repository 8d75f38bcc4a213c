#!/usr/bin/env bash
# Without /proc nobody can tell whether a file of the model folder lies inside it: the message says so, not that it is a link.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
if ! unshare --user --map-root-user --mount mount -t tmpfs none /proc 2>/dev/null; then
    echo "skipped: no name spaces of users and mounts"
    exit 77
fi
if grep -q __asan_init "$trimtab"; then
    echo "skipped: the address sanitizer reads /proc itself"
    exit 77
fi
cp -r "$root/tests/golden/qwen2/model" model && cp "$root"/tests/support/tiny_tokenizer/* model/ && chmod -R u+w model
echo '{"prompt": "1 + 1 =", "completion": " 2"}' >rows.jsonl
run=("$trimtab" train --model_name_or_path model --dataset_name rows.jsonl --output_dir out --max_steps 1 --report_to none)
code=0
unshare --user --map-root-user --mount bash -c 'mount -t tmpfs none /proc && exec "$@"' - "${run[@]}" 2>log || code=$?
[ $code -eq 3 ] || fail "exit code $code without /proc:" "$(cat log)"
grep -q "cannot tell where the open file 'model/tokenizer" log && grep -q '/proc must be mounted' log || fail "another error:" "$(cat log)"
"${run[@]}" 2>log || fail "with /proc:" "$(cat log)"
finish
