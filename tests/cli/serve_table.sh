#!/usr/bin/env bash
# trimtab serve for evaluation harnesses: echo, log p of prompts, token ids, /tokenize, /detokenize, max_tokens 0; and the
# members of a request that change an answer; every row of docs/openai-api.md.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
cp -r "$root/tests/golden/llama3/model" model && cp "$root"/tests/support/tiny_tokenizer/* model/ && chmod -R u+w model
sed -i 's/"max_position_embeddings": [0-9]*/"max_position_embeddings": 200000/' model/config.json
cat >model/chat_template.jinja <<'END'
{% for m in messages %}{{ '<' + m.role + '> ' + m.content + '</s>\n' }}{% endfor %}{% for d in documents or [] %}{{ d.text }}{% endfor %}{{ mark or '' }}{% if add_generation_prompt %}{{ '<assistant> ' }}{% endif %}
END
expect 2 "is no address to listen at" serve --model_name_or_path model --host nowhere.example >/dev/null
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
# A tokenizer that begins a text with a token of its own.
python3 - <<'END'
import json
tokenizer = json.load(open("model/tokenizer.json"))
begin, text = {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
tokenizer["post_processor"] = {"type": "TemplateProcessing", "single": [begin, text],
                               "pair": [begin, text, {"Sequence": {"id": "B", "type_id": 1}}],
                               "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}
json.dump(tokenizer, open("model/tokenizer.json", "w"))
END
for client in scores members; do
    python3 "$root/tests/tools/serve_$client.py" "$trimtab" model "$root/tests/golden/llama3/adapter_random" || fail "serve_$client.py"
done
python3 "$root/tests/tools/serve_table.py" "$trimtab" model "$root/tests/golden/llama3/adapter_random" "$root" || fail "serve_table.py"
finish
