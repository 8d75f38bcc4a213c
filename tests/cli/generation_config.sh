#!/usr/bin/env bash
# generation_config.json's settings of sampling: chat and serve draw by them, settings win, generate stays greedy.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
cp -r "$root/tests/golden/llama3/model" model && cp "$root"/tests/support/tiny_tokenizer/* model/ && chmod -R u+w model
cat >model/chat_template.jinja <<'END'
{% for m in messages %}{{ '<' + m.role + '> ' + m.content + '</s>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<assistant> ' }}{% endif %}
END
# recommend JSON: what the model's file says.
recommend() {
    printf '%s\n' "$1" >model/generation_config.json
}
talk() {
    printf 'abc\n' | "$trimtab" chat --model_name_or_path model --max_new_tokens 30 --ignore_eos "$@" >printed 2>err ||
        fail "chat $*:" "$(cat err)"
}
answer() {
    "$trimtab" generate --model_name_or_path model --max_new_tokens 30 --ignore_eos \
        --messages '[{"role": "user", "content": "abc"}]' "$@" 2>/dev/null
}
# same FLAGS...: the talk was the answer of generate with these flags.
same() {
    answer "$@" >wanted
    cmp printed wanted || fail "chat has not the answer of generate $*:" "$(cat err)"
}
rm -f model/generation_config.json
answer >greedy
talk
same
grep -q 'generation_config.json' err && fail "a line about a file that is not there"

recommend '{"do_sample": true, "temperature": 1.5, "top_k": 20, "top_p": 0.9, "min_p": 0.01, "repetition_penalty": 1.3, "max_new_tokens": 3}'
whole=(--temperature 1.5 --top_k 20 --top_p 0.9 --min_p 0.01 --repetition_penalty 1.3)
talk
same "${whole[@]}"
cmp -s printed greedy && fail "a draw that is greedy proves nothing"
grep -q 'sampling by generation_config.json: temperature 1.5, top_k 20, top_p 0.9, min_p 0.01, repetition_penalty 1.3 ' err ||
    fail "the start line:" "$(cat err)"
answer | cmp - greedy || fail "generate is not greedy"
talk --generation_config none
cmp printed greedy || fail "--generation_config none is not greedy"
grep -q 'generation_config.json' err && fail "--generation_config none reads the file:" "$(cat err)"

# Each setting that is given wins over the file's.
for flag in 'temperature 0.3' 'top_k 2' 'top_p 0.2' 'min_p 0.9' 'repetition_penalty 2.5'; do
    read -r -a own <<<"--$flag"
    talk "${own[@]}"
    same "${whole[@]}" "${own[@]}"
    grep -q "json:.* ${flag%% *} " err && fail "--$flag does not win:" "$(cat err)"
done
talk --temperature 0
same --repetition_penalty 1.3
talk --do_sample false
same --repetition_penalty 1.3

# A file that does not say do_sample recommends no draw.
recommend '{"temperature": 1.5, "top_k": 20, "repetition_penalty": 1.3}'
talk
same --repetition_penalty 1.3
recommend '{"do_sample": true}'
talk
same --do_sample true
grep -q 'json: temperature 1 ' err || fail "the start line:" "$(cat err)"
for wrong in '{"do_sample": true, "temperature": "hot"}' '{"do_sample": 1}' '{"do_sample": true, "top_p": 2}' '{"repetition_penalty": -1}'; do
    recommend "$wrong"
    code=0
    printf 'abc\n' | "$trimtab" chat --model_name_or_path model >printed 2>err || code=$?
    [ $code -ne 0 ] && grep -q 'generation_config none goes without' err || fail "$wrong is taken ($code):" "$(cat err)"
    talk --generation_config none
done
finish
