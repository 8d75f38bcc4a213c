#!/usr/bin/env bash
# lm-evaluation-harness as it is installed, over trimtab serve, beside its own hf backend: the same log p, texts and scores
# (bench/peers/lm_eval_serve.py). TT_PYTHON: a Python that has lm_eval and torch.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
python=${TT_PYTHON:-python3}
"$python" -c 'import lm_eval, torch' 2>/dev/null || { echo "skipped: Python has no lm_eval"; exit 77; }
cp -r "$root/tests/golden/llama3/model" model && cp "$root"/tests/support/tiny_tokenizer/* model/ && chmod -R u+w model
sed -i 's/"max_position_embeddings": [0-9]*/"max_position_embeddings": 4096/' model/config.json
"$python" "$root/bench/peers/lm_eval_tasks.py" tasks 6
"$python" "$root/bench/peers/lm_eval_serve.py" "$trimtab" model tasks --batch 4 >out 2>err || fail "the harness:" "$(cat out; tail -20 err)"
grep -q '"task": "tokens"' out || fail "no tokens were compared:" "$(cat out)"
# Conversations.
cat >model/chat_template.jinja <<'END'
{% for m in messages %}{{ '<' + m.role + '> ' + m.content + '</s>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<assistant> ' }}{% endif %}
END
"$python" "$root/bench/peers/lm_eval_serve.py" "$trimtab" model tasks --batch 4 --chat >out 2>err ||
    fail "the harness with conversations:" "$(cat out; tail -20 err)"
grep -q '"task": "copies"' out || fail "no texts were compared:" "$(cat out)"
finish
