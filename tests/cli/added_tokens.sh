#!/bin/bash
# Tokens that only the files beside tokenizer.json name: rows, templates, generation's output and GGUF know them.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
golden=$root/tests/golden
cp -r "$golden/qwen2/model" base && chmod -R u+w base && cp "$root"/tests/support/tiny_tokenizer/* base/
echo '{"text": "a <t1> b"}' >rows.jsonl
echo '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}' >chat.jsonl
# with NAME FILE JSON: a copy of the base with one more or another file
with() {
    rm -rf "$1"
    cp -r base "$1" && printf '%s' "$3" >"$1/$2"
}
tokens() { "$trimtab" data --model_name_or_path "$1" --dataset_name rows.jsonl --dataset_text_field text 2>said | grep -oE '[0-9]+ tokens' | head -n 1; }
names='"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"'
with plain tokenizer_config.json "{$names}"
with listed tokenizer_config.json "{$names, \"additional_special_tokens\": [\"<t1>\"]}"
with extra tokenizer_config.json "{$names, \"extra_special_tokens\": [\"<t1>\"]}"
with decoder tokenizer_config.json "{$names, \"added_tokens_decoder\": {\"259\": {\"content\": \"<t1>\", \"special\": true}}}"
with added added_tokens.json '{"<t1>": 259}'
with map special_tokens_map.json '{"pad_token": "<t1>"}'
before=$(tokens plain) after=$(tokens listed)
[ "$before" = "9 tokens" ] || fail "a tokenizer without <t1>: '$before'" "$(cat said)"
[ "$after" = "6 tokens" ] || fail "one with it: '$after'" "$(cat said)"
for model in extra decoder added map; do
    [ "$(tokens $model)" = "$after" ] || fail "$model: '$(tokens $model)'" "$(cat said)"
done
grep -q "has id 259 and gets" said && fail "a token whose id is the next free one is warned of"
with elsewhere added_tokens.json '{"<t1>": 262}'
tokens elsewhere >/dev/null
grep -q "added token '<t1>' has id 262 and gets 259" said || fail "another id without a word:" "$(cat said)"

# A template that writes the token by its name, and its text in the answer.
echo '{% for m in messages %}{{ tool_token }}{{ m.content }}{% endfor %}' >template
with templated tokenizer_config.json "{$names, \"tool_token\": \"<t1>\"}"
cp template templated/chat_template.jinja
expect 0 "<t1>" data --model_name_or_path templated --dataset_name chat.jsonl --rows 1
"$trimtab" data --model_name_or_path templated --dataset_name chat.jsonl --rows 1 --json 2>said | grep -q 259 || fail "the template's token is not one id:" "$(cat said)"

# GGUF has it as a control token, and one beyond the embeddings is left out.
expect 0 "" export gguf --model listed --output_file listed.gguf
grep -qaF '<t1>' listed.gguf || fail "GGUF lacks the token"
expect 0 "" export gguf --model plain --output_file plain.gguf
grep -qaF '<t1>' plain.gguf && fail "GGUF has a token from nowhere"
with many tokenizer_config.json "{$names, \"extra_special_tokens\": [$(seq -f '"<t%g>"' -s , 60)]}"
expect 0 "token '<t60>' has id 318, and the model embeds" export gguf --model many --output_file many.gguf
grep -qaF '<t60>' many.gguf && fail "GGUF has a token without a row"
echo '{"text": "a <t60> b"}' >rows.jsonl
expect 3 "resize_token_embeddings" data --model_name_or_path many --dataset_name rows.jsonl --dataset_text_field text
expect 3 "resize_token_embeddings" generate --model_name_or_path many --prompt "a <t60> b" --max_new_tokens 1
finish
