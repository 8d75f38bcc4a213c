#!/usr/bin/env bash
# Standard streams that the caller has closed: no file of a run gets their number, and with it the lines of the log.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
cp -r "$root/tests/golden/qwen2/model" model && cp "$root"/tests/support/tiny_tokenizer/* model/ && chmod -R u+w model
echo '{"prompt": "1 + 1 =", "completion": " 2"}' >rows.jsonl
echo '{% for m in messages %}{{ m.content }}{% endfor %}' >model/chat_template.jinja
code=0
"$trimtab" train --model_name_or_path model --dataset_name rows.jsonl --output_dir out --max_steps 6 --save_steps 2 --ranks 2 \
    --threads 1 --report_to none <&- >&- 2>&- || code=$?
[ $code -eq 0 ] || fail "a training without streams ends with $code"
[ -f out/ranks/rank-1.jsonl ] || fail "no records of rank 1"
for file in out/metrics.jsonl out/ranks/rank-1.jsonl out/checkpoint-*/metrics.jsonl; do
    [ ! -f "$file" ] || ! grep -v '^{.*}$' "$file" || fail "$file has lines of the log"
done
"$trimtab" checkpoint verify out/checkpoint-4 >/dev/null || fail "a checkpoint is damaged"
code=0
"$trimtab" chat --model_name_or_path model --max_new_tokens 2 <&- >said 2>err || code=$?
[ $code -eq 5 ] || fail "chat without an input ends with $code: $(cat err)"
grep -q 'cannot read standard input: Bad file descriptor' err || fail "chat without an input: $(cat err)"
code=0
"$trimtab" version >&- 2>err || code=$?
[ $code -eq 5 ] || fail "version without an output ends with $code: $(cat err)"
finish
