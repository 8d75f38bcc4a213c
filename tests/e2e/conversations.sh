#!/usr/bin/env bash
# Rows of messages from end to end: training with a template of its own, the template beside the adapter, evaluation,
# answers and a resume with it, and what is refused.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
cp -r "$root/tests/golden/qwen2/model" model && cp "$root"/tests/support/tiny_tokenizer/* model/ && chmod -R u+w model
cat >turns.jinja <<'END'
{% for m in messages %}{{ '<' + m.role + '> ' + m.content + '</s>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<assistant> ' }}{% endif %}
END
for i in $(seq 12); do
    echo "{\"messages\": [{\"role\": \"user\", \"content\": \"$i + 1?\"}, {\"role\": \"assistant\", \"content\": \"$((i + 1))\"}]}"
done >rows.jsonl
model=(--model_name_or_path model)
short=(--max_steps 2 --per_device_train_batch_size 4 --report_to none)

# A tokenizer without a template: the error says what to give.
expect 3 'the tokenizer has none' train "${model[@]}" --dataset_name rows.jsonl --output_dir none "${short[@]}"
grep -q 'chat_template_path' err || fail "no hint at chat_template_path:" "$(cat err)"

expect 0 'result: tuned' train "${model[@]}" --dataset_name rows.jsonl --output_dir tuned "${short[@]}" \
    --chat_template_path turns.jinja --assistant_only_loss true --save_steps 1
grep -qF '<assistant> [[2</s>' err || fail "the first sample is marked otherwise:" "$(cat err)"
cmp tuned/chat_template.jinja turns.jinja || fail "the adapter's template is another"
cmp tuned/checkpoint-1/chat_template.jinja turns.jinja || fail "the checkpoint's template is another"

# The adapter's template serves where no other is given.
expect 0 'loss' eval "${model[@]}" --adapter_name_or_path tuned --eval_dataset rows.jsonl --json true
grep -o '"loss": [0-9.]*' printed >with_adapters
expect 0 'loss' eval "${model[@]}" --adapter_name_or_path tuned --eval_dataset rows.jsonl --json true --chat_template_path turns.jinja
grep -o '"loss": [0-9.]*' printed | cmp - with_adapters || fail "evaluation with the adapter's template differs"
expect 0 '' generate "${model[@]}" --adapter_name_or_path tuned --messages '[{"role": "user", "content": "3 + 1?"}]' \
    --max_new_tokens 3 --json true
grep -qF '"prompt": "<user> 3 + 1?</s>\n<assistant> "' printed || fail "another prompt:" "$(cat printed)"
expect 3 'the tokenizer has none' generate "${model[@]}" --messages '[{"role": "user", "content": "3 + 1?"}]'

# A resumed run has the template and the date of its start, whatever the day is.
cat >dated.jinja <<'END'
{{ strftime_now('%Y-%m-%d') }}{% for m in messages %}{{ '<' + m.role + '> ' + m.content + '</s>' }}{% endfor %}
END
expect 0 'result: dated' train "${model[@]}" --dataset_name rows.jsonl --output_dir dated --max_steps 4 --report_to none \
    --per_device_train_batch_size 4 --chat_template_path dated.jinja --date 2024-02-03 --save_steps 2
grep -qF '2024-02-03<user>' err || fail "another date:" "$(cat err)"
cp dated/adapter_model.safetensors whole
rm -r dated/checkpoint-4
expect 0 'result: dated' train "${model[@]}" --dataset_name rows.jsonl --output_dir dated --max_steps 4 --report_to none \
    --per_device_train_batch_size 4 --chat_template_path dated.jinja --save_steps 2 --resume_from_checkpoint true
grep -qF '2024-02-03<user>' err || fail "a resume has another date:" "$(cat err)"
cmp dated/adapter_model.safetensors whole || fail "a resumed run has other weights"
rm -r dated/checkpoint-4
expect 2 'training data was' train "${model[@]}" --dataset_name rows.jsonl --output_dir dated --max_steps 4 --report_to none \
    --per_device_train_batch_size 4 --chat_template_path turns.jinja --resume_from_checkpoint true

# A template that leaves its folder by a link is not copied.
mkdir linked && ln -s /etc/hostname linked/chat_template.jinja
expect 3 'chat_template.jinja' train "${model[@]}" --dataset_name rows.jsonl --output_dir other "${short[@]}" --chat_template_path linked
mkdir named && printf '{"chat_template": [{"name": "../up", "template": "x"}, {"name": "default", "template": "x"}]}' >named/tokenizer_config.json
expect 3 "cannot be stored as a file" train "${model[@]}" --dataset_name rows.jsonl --output_dir other "${short[@]}" --chat_template_path named
echo '{% if %}' >broken.jinja
expect 3 'broken.jinja' train "${model[@]}" --dataset_name rows.jsonl --output_dir other "${short[@]}" --chat_template_path broken.jinja
[ ! -e other ] || fail "a refused run leaves its folder"
finish
