#!/usr/bin/env bash
# The chat page of trimtab serve: its address, its policy, and in a browser where there is one a conversation with a model
# and two adapters, whose answers are those of the API: streams, tokens under the pointer, settings, calls, keys, a phone.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
cp -r "$root/tests/golden/llama3/model" model && cp "$root"/tests/support/tiny_tokenizer/* model/ && chmod -R u+w model
sed -i 's/"max_position_embeddings": [0-9]*/"max_position_embeddings": 200000/' model/config.json
cat >model/chat_template.jinja <<'END'
{# reasoning: <think></think> #}{% for m in messages %}{{ '<' + m.role + '> ' + (m.content or '') }}{% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}{% endfor %}{{ '</s>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<assistant> ' }}{% endif %}
END
expect 2 "is no address to listen at" serve --model_name_or_path model --host nowhere.example >/dev/null
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
# A model that reasons, calls tools and writes markup; two adapters that say something else.
cat >said.jsonl <<'END'
{"messages": [{"role": "user", "content": "Rome"}, {"role": "assistant", "content": "<think>Sums are easy.</think>\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>"}]}
{"messages": [{"role": "user", "content": "Oslo"}, {"role": "assistant", "content": "<script>document.title=1</script><img src=x onerror=document.title=2>"}]}
END
cat >other.jsonl <<'END'
{"messages": [{"role": "user", "content": "Rome"}, {"role": "assistant", "content": "The naïve 😀 answer."}]}
{"messages": [{"role": "user", "content": "Oslo"}, {"role": "assistant", "content": "<b>über 😀😀 dots</b> &amp; more"}]}
END
trained=(--assistant_only_loss --per_device_train_batch_size 2 --save_strategy no --lr_scheduler_type constant --report_to none --bf16 false)
expect 0 "" train --model_name_or_path model --dataset_name said.jsonl --use_peft false --learning_rate 1e-2 --max_steps 200 \
    --output_dir talker "${trained[@]}"
cp model/chat_template.jinja talker/
expect 0 "" train --model_name_or_path talker --dataset_name other.jsonl --learning_rate 1e-2 --max_steps 200 --lora_r 16 \
    --target_modules all-linear --output_dir far "${trained[@]}"
rm -r model && mv talker model
mkdir pictures
python3 "$root/tests/tools/serve_page.py" "$trimtab" model "$root/tests/golden/llama3/adapter_random,far" "${TT_CHAT_PICTURES:-pictures}" ||
    fail "the page"
finish
