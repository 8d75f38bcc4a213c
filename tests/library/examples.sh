#!/bin/bash
# The examples of examples/library/ work, from training to text, and pass errors on.
build=$1
tests=$(cd "$(dirname "$0")/.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failures=0
fail() {
    echo "FAILED: $*"
    cat said
    failures=$((failures + 1))
}
cp -r "$tests/golden/llama2/model" model && cp "$tests"/support/tiny_tokenizer/* model/ || exit 1
for i in $(seq 16); do echo "{\"prompt\": \"$i + 1 =\", \"completion\": \" $((i + 1))\"}"; done >train.jsonl

"$build/example_train" model train.jsonl out max_steps 3 threads 1 report_to none >said 2>&1 || fail "train"
grep -q '^step 3 of 3: loss ' said || fail "train shows no progress"
grep -q 'the adapter lies in out$' said || fail "train does not say where the adapter is"
"$build/example_generate" model "1 + 1 =" adapter_name_or_path out max_new_tokens 8 threads 1 ignore_eos true >said 2>&1 || fail "generate"
grep -qE '^[0-9]+ tokens$' said || fail "generate counts no tokens"
"$build/example_train" model train.jsonl out lora_r x >said 2>&1 && fail "a wrong setting is no failure"
grep -q "^error: .*'lora_r' takes a whole number" said || fail "a wrong setting is not named"
"$build/example_generate" nowhere x >said 2>&1 && fail "a missing model is no failure"
grep -q "^error: .*nowhere" said || fail "a missing model is not named"
[ $failures -eq 0 ] && echo "all as expected"
exit $((failures > 0))
