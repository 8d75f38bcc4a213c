#!/usr/bin/env bash
# trimtab data: what it shows is what a training reads; its figures, its marks and colours, and what is escaped.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
cp -r "$root/tests/golden/qwen2/model" model && cp "$root"/tests/support/tiny_tokenizer/* model/ && chmod -R u+w model
rm model/*.safetensors # the weights are not needed
data=(data --model_name_or_path model)
for i in 1 2 3 4 5; do echo "{\"prompt\": \"$i + 1 =\", \"completion\": \" $((i + 1))\"}"; done >sums.jsonl
{
    head -n 2 sums.jsonl
    echo '{"prompt": "a much longer prompt than max_length allows for it", "completion": " yes"}'
    printf '{"text": "red \\u001b[31m \\u202e line\\nbreak"}\n'
} >other.jsonl

# Marks, and the same text as the first line of a training's log.
expect 0 '1 + 1 =[[ 2' "${data[@]}" --dataset_name sums.jsonl --rows 1
expect 0 'sample 5 of 5: ' "${data[@]}" --dataset_name sums.jsonl --rows 9 --skip 4
[ "$(grep -c '^sample ' printed)" -eq 1 ] || fail "--skip 4 of 5 samples shows more than one"
expect 0 'sample' "${data[@]}" --dataset_name sums.jsonl --rows 0
grep -q '^sample ' printed && fail "--rows 0 shows a sample"
expect 2 'rows' "${data[@]}" --dataset_name sums.jsonl --rows -1

# A zero byte, which ids may be, is a part of its piece and escaped in the view.
echo '{"input_ids": [1, 100, 3, 101], "labels": [-100, 100, 3, 101]}' >zeros.jsonl
expect 0 '\u0000' "${data[@]}" --dataset_name zeros.jsonl --rows 1 --json
[ "$(grep -oE '"text": "[^"]+\\u0000[^"]+"' printed | wc -l)" = 1 ] || fail "a piece is cut at its zero byte:" "$(cat printed)"
expect 0 '\x00' "${data[@]}" --dataset_name zeros.jsonl --rows 1

# Figures.
expect 0 'rows              5' "${data[@]}" --dataset_name sums.jsonl
expect 0 '2 rows of more than 12 tokens (the longest has 55), truncated' "${data[@]}" --dataset_name other.jsonl --max_length 12 --rows 0
expect 0 ', dropped' "${data[@]}" --dataset_name other.jsonl --max_length 12 --over_length drop
expect 3 'tokens are more than max_length' "${data[@]}" --dataset_name other.jsonl --max_length 12 --over_length error
expect 0 'without labels    1, left out' "${data[@]}" --dataset_name other.jsonl --max_length 12 --rows 0
cat sums.jsonl sums.jsonl >twice.jsonl
expect 0 'duplicates        5 samples are equal to an earlier one (50.0 %)' "${data[@]}" --dataset_name twice.jsonl

# Conversations that are probably not what was meant.
echo "{% for m in messages %}{{ m.role + ': ' + m.content + '</s>' }}{% endfor %}" >chat.jinja
{
    echo '{"messages": [{"role": "user", "content": "1"}, {"role": "assistant", "content": "2"}]}'
    echo '{"messages": [{"role": "user", "content": "1"}, {"role": "asistant", "content": "2"}]}'
    echo '{"messages": [{"role": "narrator", "content": "1"}, {"role": "assistant", "content": " "}]}'
    echo '{"messages": [{"role": "user", "content": "1"}, {"role": "assistant", "content": "", "tool_calls": []}]}'
} >chats.jsonl
sed -n '1p;3s/" "/"a"/p' chats.jsonl >masked.jsonl
expect 0 "role in doubt     'asistant' in 1 conversations, the first in row 2: it is no usual role" \
    "${data[@]}" --dataset_name chats.jsonl --chat_template_path chat.jinja
expect 0 "empty answers     1 conversations with an assistant's message that says nothing, or whose tool calls the chat template leaves out, the first in row 3" \
    "${data[@]}" --dataset_name chats.jsonl --chat_template_path chat.jinja

expect 0 "role in doubt     'narrator' in 1 conversations, the first in row 2: it is no usual role and does not train" \
    "${data[@]}" --dataset_name masked.jsonl --chat_template_path chat.jinja --assistant_only_loss
expect 0 '"roles_in_doubt": [{"role": "narrator", "conversations": 1, "row": 2, "trains": false}]' \
    "${data[@]}" --dataset_name masked.jsonl --chat_template_path chat.jinja --assistant_only_loss --json

# Per source, and the evaluation data.
mixture='[{"path": "sums.jsonl", "weight": 3}, {"path": "other.jsonl"}]'
expect 0 'evaluation data' "${data[@]}" --datasets "$mixture" --eval_strategy steps --eval_dataset sums.jsonl
grep -Eq '^ +5 +15 .* sums.jsonl$' printed || fail "no figures of the first source:" "$(cat printed)"
grep -Eq '^ +4 +4 .* other.jsonl$' printed || fail "no figures of the second source:" "$(cat printed)"

# Escapes in data never reach a terminal; colours do, unless NO_COLOR or a pipe says otherwise.
escape=$'\x1b'
expect 0 'red \x1b[31m \u202e line' "${data[@]}" --dataset_name other.jsonl --rows 9
grep -q "$escape" printed && fail "an escape sequence in a pipe"
shown() { TERM=xterm script -qec "'$trimtab' ${data[*]} --dataset_name other.jsonl --rows 9" /dev/null; }
shown >terminal
grep -q "=$escape\[32m 2" terminal || fail "no colours on a terminal:" "$(cat terminal)"
grep -q "$escape\[31m" terminal && fail "the data's escape sequence on a terminal"
NO_COLOR=1 shown >terminal
grep -q "$escape\[3" terminal && fail "colours in spite of NO_COLOR"

# JSON: one object, ids and labels as in the row.
echo '{"input_ids": [5, 6, 7], "labels": [-100, 6, 7]}' >ids.jsonl
expect 0 '"input_ids": [5, 6, 7], "labels": [-100, 6, 7]' "${data[@]}" --dataset_name ids.jsonl --json
[ "$(wc -l <printed)" -eq 1 ] || fail "--json prints more than one line"
expect 0 '"sources": [{"rows": 5, "samples": 15' "${data[@]}" --datasets "$mixture" --json

# The same settings are refused as in training, and a file of a training is accepted as it is.
expect 2 "dataset_name' is missing" "${data[@]}"
printf 'dataset_name: sums.jsonl\nlearning_rate: 1e-4\nlora_r: 4\nmax_steps: 3\n' >sft.yaml
expect 0 'rows              5' "${data[@]}" --config sft.yaml

# The turns of a conversation stay on one side.
cat >turns.jinja <<'END'
{% for message in messages %}{{ '<' + message.role + '> ' + message.content + '</s>\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<assistant> ' }}{% endif %}
END
for i in 1 2 3 4; do
    echo "{\"messages\": [{\"role\": \"user\", \"content\": \"$i\"}, {\"role\": \"assistant\", \"content\": \"a\"}, {\"role\": \"user\", \"content\": \"b\"}, {\"role\": \"assistant\", \"content\": \"c\"}]}"
done >turns.jsonl
turns=("${data[@]}" --dataset_name turns.jsonl --chat_template_path turns.jinja --assistant_only_loss --sample_per_turn)
expect 0 'samples           8' "${turns[@]}"
expect 2 'eval_split_size would hold out samples of conversations whose other turns train' "${turns[@]}" --eval_strategy steps \
    --eval_split_size 0.25

# One stream: rows are whole, what is supervised is counted after the cuts, and eval_packing decides for itself.
for first in 10 30 60; do
    echo "{\"input_ids\": [$(seq -s ', ' $first $((first + 19)))]}"
done >stream.jsonl
stream=("${data[@]}" --dataset_name stream.jsonl --max_length 16 --packing_strategy wrapped --rows 0)
expect 0 'tokens            60, of which 54 are supervised (90.0 %)' "${stream[@]}" --packing
grep -q 'one stream        cut every 16 tokens (the longest row has 20)' printed || fail "no line about the stream:" "$(cat printed)"
expect 0 'tokens            48, of which 45 are supervised' "${stream[@]}"
both=(--eval_strategy steps --eval_dataset stream.jsonl)
expect 0 'tokens            60, of which 54 are supervised' "${stream[@]}" --packing "${both[@]}"
[ "$(grep -c 'of which 54 are supervised' printed)" -eq 2 ] || fail "the evaluation data are no stream:" "$(cat printed)"
expect 0 'tokens            60, of which 54 are supervised' "${stream[@]}" "${both[@]}" --eval_packing true
grep -q 'tokens            48, of which 45 are supervised' printed || fail "the training rows are not truncated:" "$(cat printed)"
expect 0 'tokens            60, of which 54 are supervised' "${stream[@]}" --packing "${both[@]}" --eval_packing false
grep -q '3 rows of more than 16 tokens (the longest has 20), truncated' printed || fail "the evaluation rows are whole:" "$(cat printed)"
expect 0 'tokens            16, of which 15 are supervised' "${stream[@]}" --packing --eval_strategy steps --eval_split_size 1 --eval_packing false
expect 0 'tokens            32, of which 30 are supervised' "${stream[@]}" --eval_packing true --eval_strategy steps --eval_split_size 1
grep -q 'tokens            20, of which 18 are supervised' printed || fail "the held out row is not whole:" "$(cat printed)"
finish
