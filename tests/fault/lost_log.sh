#!/usr/bin/env bash
# A program that reads the log of a training ends: the training goes on. Commands whose work is their output end.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
cp -r "$root/tests/golden/qwen2/model" model && cp "$root"/tests/support/tiny_tokenizer/* model/ && chmod -R u+w model
echo '{"prompt": "1 + 1 =", "completion": " 2"}' >rows.jsonl
{
    code=0
    "$trimtab" train --model_name_or_path model --dataset_name rows.jsonl --output_dir out --max_steps 30 --logging_steps 1 \
        --ranks 2 --threads 1 --report_to none || code=$?
    echo $code >code
} 2>&1 | head -n 1 >/dev/null
[ "$(cat code)" -eq 0 ] || fail "a training without a reader of its log ends with $(cat code)"
[ -f out/adapter_model.safetensors ] || fail "no result"
[ "$(grep -c '"loss"' out/metrics.jsonl)" -eq 30 ] || fail "not 30 rows of metrics"
"$trimtab" help --markdown | head -n 1 >/dev/null
[ "${PIPESTATUS[0]}" -eq 141 ] || fail "help ends with another code than that of SIGPIPE"
finish
