#!/usr/bin/env bash
# The program that reads the log of a training ends: the training goes on. Commands whose work is their output end.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
cp -r "$root/tests/golden/qwen2/model" model && cp "$root"/tests/support/tiny_tokenizer/* model/ && chmod -R u+w model
echo '{"prompt": "1 + 1 =", "completion": " 2"}' >rows.jsonl
exec 5> >(exec true) # a pipe whose reader has ended
wait $!
code=0
"$trimtab" train --model_name_or_path model --dataset_name rows.jsonl --output_dir out --max_steps 30 --logging_steps 1 --ranks 2 \
    --threads 1 --report_to none 2>&5 || code=$?
[ $code -eq 0 ] || fail "a training without a reader of its log ends with $code"
[ -f out/adapter_model.safetensors ] || fail "no result"
[ "$(grep -c '"loss"' out/metrics.jsonl)" -eq 30 ] || fail "not 30 rows of metrics"
code=0
"$trimtab" help --markdown >&5 || code=$?
[ $code -eq 141 ] || fail "help ends with $code, not with SIGPIPE"
finish
