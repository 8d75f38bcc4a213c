#!/usr/bin/env bash
# generate warns of empty completions where a model for conversations completes plain text, and nowhere else.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
cp -r "$root/tests/golden/llama3/model" model && cp "$root"/tests/support/tiny_tokenizer/* model/ && chmod -R u+w model
ask=(generate --model_name_or_path model --max_new_tokens 2 --bf16 false)
printf '{"prompt": "a"}\n{"prompt": "b"}\n' >two.jsonl
echo "{% for m in messages %}{{ m.role + ': ' + m.content + '</s>' }}{% endfor %}" >template
why='the model ends there; it is made for conversations, which --messages and trimtab chat hold'
warns() { expect 0 "warning: $1: $why" "${@:2}"; }
silent() {
    expect 0 '' "$@"
    grep -q 'empty' err && fail "a warning of $*:" "$(cat err)"
}
cp template model/chat_template.jinja
silent "${ask[@]}" --prompt a
# Every token ends a completion.
vocabulary=$(sed -nE 's/.*"vocab_size": *([0-9]+).*/\1/p' model/config.json)
[ "$vocabulary" -gt 0 ] || fail "config.json has no vocab_size"
echo "{\"eos_token_id\": [$(seq -s, 0 $((vocabulary - 1)))]}" >model/generation_config.json
warns '1 of 1 completions is empty' "${ask[@]}" --prompt a
warns '2 of 2 completions are empty' "${ask[@]}" --prompts two.jsonl
silent "${ask[@]}" --messages '[{"role": "user", "content": "a"}]'
rm model/chat_template.jinja
silent "${ask[@]}" --prompt a
finish
