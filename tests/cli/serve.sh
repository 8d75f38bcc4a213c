#!/usr/bin/env bash
# trimtab serve: answers are those of generate; streams, stop texts, seeds; broken, large and slow requests; 200 clients
# at once; cancelled requests; SIGTERM; the official openai client where Python has it.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
cp -r "$root/tests/golden/llama3/model" model && cp "$root"/tests/support/tiny_tokenizer/* model/ && chmod -R u+w model
sed -i 's/"max_position_embeddings": [0-9]*/"max_position_embeddings": 200000/' model/config.json
cat >model/chat_template.jinja <<'END'
{% for m in messages %}{{ '<' + m.role + '> ' + m.content + '</s>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<assistant> ' }}{% endif %}
END
served=(--model_name_or_path model --port 0)
expect 2 "is no address to listen at" serve "${served[@]}" --host nowhere.example >/dev/null
expect 2 "port" serve "${served[@]}" --port 70000
expect 2 "cpu_gemm dot multiplies a few rows" serve "${served[@]}" --cpu_gemm dot
expect 2 "allowed_hosts: 'a:80' is no host name" serve "${served[@]}" --allowed_hosts a:80
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
# A model that calls tools.
cat >calls.jsonl <<'END'
{"messages": [{"role": "user", "content": "Rome"}, {"role": "assistant", "content": "So.\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>"}]}
{"messages": [{"role": "user", "content": "Oslo"}, {"role": "assistant", "content": "{\"name\": \"add\", \"parameters\": {\"a\": 2}}"}]}
END
expect 0 "" train --model_name_or_path model --dataset_name calls.jsonl --assistant_only_loss --output_dir caller \
    --use_peft false --learning_rate 1e-2 --max_steps 150 --per_device_train_batch_size 2 --save_strategy no \
    --lr_scheduler_type constant --report_to none --bf16 false
cat >caller/chat_template.jinja <<'END'
{% for m in messages %}{{ '<' + m.role + '> ' + (m.content or '') }}{% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}{% endfor %}{{ '</s>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<assistant> ' }}{% endif %}
END
sed 's/c.function.arguments | tojson/"x" + c.function.arguments/' caller/chat_template.jinja >texts.jinja
# A model that answers in harmony's messages, whose marks are special tokens.
cp -r model harmony
python3 "$root/tests/tools/special_tokens.py" harmony '<|channel|>' '<|message|>' '<|end|>' '<|call|>' || fail "special tokens"
cat >harmony/chat_template.jinja <<'END'
{%- for m in messages %}{{ '<' + m.role + '>' }}{% if m.role == 'assistant' %}{{ '<|channel|>analysis<|message|>' + m.thinking + '<|end|>' }}
{%- if m.tool_calls %}{{ '<|channel|>commentary to=functions.add <|constrain|>json<|message|>' + (m.tool_calls[0].function.arguments | tojson) + '<|call|>' }}
{%- else %}{{ '<|channel|>final<|message|>' + m.content }}{% endif %}{{ '</s>' }}{% else %}{{ m.content }}{% endif %}{% endfor %}
{%- if add_generation_prompt %}{{ '<assistant>' }}{% endif %}
END
cat >messages.jsonl <<'END'
{"messages": [{"role": "user", "content": "Rome"}, {"role": "assistant", "content": "", "thinking": "Hm.", "tool_calls": [{"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}]}]}
{"messages": [{"role": "user", "content": "Oslo"}, {"role": "assistant", "content": "It is.", "thinking": "So it is."}]}
END
expect 0 "" train --model_name_or_path harmony --dataset_name messages.jsonl --assistant_only_loss --output_dir speaker \
    --use_peft false --learning_rate 1e-2 --max_steps 150 --per_device_train_batch_size 2 --save_strategy no \
    --lr_scheduler_type constant --report_to none --bf16 false
python3 "$root/tests/tools/serve_client.py" "$trimtab" model "$root/tests/golden/llama3/adapter_random" || fail "a client"

# Two servers cannot share a port; a wide address is warned of.
"$trimtab" serve "${served[@]}" --host 0.0.0.0 2>log &
first=$!
for _ in $(seq 200); do
    grep -q 'http://' log && break
    sleep 0.05
done
grep -q 'open to everybody' log || fail "no warning about 0.0.0.0:" "$(cat log)"
port=$(grep -oE ':[0-9]+/v1' log | grep -oE '[0-9]+' | head -1)
expect 5 "cannot listen at" serve --model_name_or_path model --host 0.0.0.0 --port "$port"
grep -q 'loading the model' err && fail "the model is loaded for a port that is taken"
grep -q 'loading the model, with memory for 16 requests of ' log || fail "no word of the load:" "$(cat log)"
kill -TERM $first
wait $first || fail "exit code $? after SIGTERM"
finish
