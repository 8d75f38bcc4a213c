#!/usr/bin/env bash
# trimtab serve: answers that follow a schema, a pattern or a choice, and forced calls of tools in two forms.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
cp -r "$root/tests/golden/llama3/model" model && cp "$root"/tests/support/tiny_tokenizer/* model/ && chmod -R u+w model
sed -i 's/"max_position_embeddings": [0-9]*/"max_position_embeddings": 200000/' model/config.json
template='{% for m in messages %}{{ "<" + m.role + "> " + m.content + "</s>\n" }}{% endfor %}{% if add_generation_prompt %}{{ "<assistant> " }}{% endif %}'
echo "$template" >model/chat_template.jinja
expect 2 "is no address to listen at" serve --model_name_or_path model --host nowhere.example >/dev/null
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
client=("$root/tests/tools/serve_grammar.py" "$trimtab" model "$root/tests/golden/llama3/adapter_random")
TT_GRAMMAR_SCHEMAS=30 TT_GRAMMAR_LINES="$PWD/lines.jsonl" "$build/tests/test_unit_grammar_random_schemas" || fail "the schemas"
python3 "${client[@]}" lines.jsonl || fail "a client"
# Templates of models that write calls in other forms.
form() {
    echo "$template{% if false %}$2{% endif %}" >model/chat_template.jinja
    python3 "${client[@]}" "$1" || fail "a client of calls as $1"
}
form hermes '<tool_call>'
form xml '<tool_call><function='
form mistral '[TOOL_CALLS]'
form named '[TOOL_CALLS] [ARGS]'
form gemma '<start_function_call>call:'
form harmony '<|channel|>'
# Marks that are special tokens, which are no text.
python3 "$root/tests/tools/special_tokens.py" model '<|tool_call>' '<tool_call|>' '<|"|>' || fail "special tokens"
form gemma '<|tool_call>call:'
cp "$root/tests/support/tiny_tokenizer/tokenizer.json" model/
python3 "$root/tests/tools/special_tokens.py" model '<|channel|>' '<|constrain|>' '<|message|>' '<|call|>' || fail "special tokens"
form harmony '<|channel|>'
cp "$root/tests/support/tiny_tokenizer/tokenizer.json" model/
form outside '</think>'
echo "$template<think>{% if false %}</think>{% endif %}" >model/chat_template.jinja
python3 "${client[@]}" inside || fail "a client of reasoning"
finish
