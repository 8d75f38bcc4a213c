#!/usr/bin/env bash
# trimtab serve for several clients: keys, limits and fair shares of each, figures for scrapers.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
cp -r "$root/tests/golden/llama3/model" model && cp "$root"/tests/support/tiny_tokenizer/* model/ && chmod -R u+w model
sed -i 's/"max_position_embeddings": [0-9]*/"max_position_embeddings": 200000/' model/config.json
cat >model/chat_template.jinja <<'END'
{% for m in messages %}{{ '<' + m.role + '> ' + m.content + '</s>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<assistant> ' }}{% endif %}
END
served=(--model_name_or_path model --port 0)
expect 2 "is no address to listen at" serve "${served[@]}" --host nowhere.example >/dev/null
printf 'a b c\n' >keys
expect 3 "keys line 1: a line must be a key" serve "${served[@]}" --api_key_file keys
printf '# nobody\n' >keys
expect 3 "has no key, so nobody could ask" serve "${served[@]}" --api_key_file keys
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
python3 "$root/tests/tools/serve_clients.py" "$trimtab" model "$root/tests/golden/llama3/adapter_random" || fail "a client"
finish
