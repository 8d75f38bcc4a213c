#!/bin/bash
# trimtab convert-config: each value of another trainer at its meaning here, its defaults where ours differ, and one error
# for all that cannot be carried over.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
unset LOCAL_RANK SLURM_STEP_ID OMPI_COMM_WORLD_SIZE PMI_SIZE PMIX_RANK

# gives 'SETTING: VALUE'...: the last conversion wrote these lines (before their comments).
gives() {
    local line
    for line in "$@"; do
        grep -qF -- "$line  # " printed || fail "no '$line' in:" "$(cat printed)"
    done
}
lacks() {
    local word
    for word in "$@"; do
        if grep -qE -- "^$word: " printed; then fail "'$word' is written:" "$(cat printed)"; fi
    done
}

# axolotl: its defaults.
axolotl() {
    { printf 'base_model: m\nlearning_rate: 1e-4\n'; cat; } >axolotl.yaml
}
axolotl <<'END'
adapter: lora
lora_r: 4
lora_alpha: 8
datasets:
  - path: rows.jsonl
    type: chat_template
END
expect 0 '' convert-config axolotl.yaml
gives 'model_name_or_path: m' 'learning_rate: 0.0001' 'use_peft: true' 'lora_r: 4' 'lora_alpha: 8' 'lora_dropout: 0' \
    'dataset_name: rows.jsonl' 'max_length: 512' 'over_length: drop' 'assistant_only_loss: true' \
    'per_device_train_batch_size: 1' 'num_train_epochs: 1' 'lr_scheduler_type: cosine' 'warmup_ratio: 0.03' \
    'save_strategy: epoch' 'save_total_limit: 4'
lacks chat_template eval_strategy lora_target_modules load_in_4bit objective
grep -qF "# axolotl's default" printed || fail "no word of a default"
# Its values.
axolotl <<'END'
adapter: qlora
load_in_4bit: true
lora_r: 4
lora_alpha: 8
lora_dropout: 0.25
lora_target_linear: true
lora_target_modules: [q_proj, v_proj]
datasets:
  - path: json
    data_files: [a.jsonl, b.jsonl]
    type: alpaca
  - path: folder
    split: extra
    type: alpaca
val_set_size: 0.1
sequence_len: 64
sample_packing: true
micro_batch_size: 3
num_epochs: 2
evals_per_epoch: 4
saves_per_epoch: 2
lr_scheduler: cosine
cosine_min_lr_ratio: 0.1
warmup_steps: 1
bf16: auto
train_on_inputs: true
gradient_checkpointing: offload
excess_length_strategy: truncate
curriculum_sampling: True
wandb_project: sums
special_tokens: {pad_token: "<pad>", eos_token: "</s>"}
deepspeed: deepspeed_configs/zero2.json
plugins: [axolotl.integrations.liger.LigerPlugin]
liger_rope: true
END
expect 0 'set the variable WANDB_PROJECT=sums' convert-config axolotl.yaml
gives 'load_in_4bit: true' 'bnb_4bit_quant_type: nf4' 'bnb_4bit_use_double_quant: true' 'lora_dropout: 0.25' \
    'lora_target_modules: all-linear' 'chat_template: alpaca' 'assistant_only_loss: false' 'eval_split_size: 0.1' \
    'datasets: [{"path": "a.jsonl"}, {"path": "b.jsonl"}, {"path": "folder", "split": "extra"}]' 'max_length: 64' \
    'packing: true' 'per_device_train_batch_size: 3' 'per_device_eval_batch_size: 3' 'num_train_epochs: 2' \
    'eval_strategy: steps' 'eval_steps: 0.125' 'save_strategy: steps' 'save_steps: 0.25' \
    'lr_scheduler_type: cosine_with_min_lr' 'lr_scheduler_kwargs: {"min_lr_rate": 0.1}' 'warmup_steps: 2' 'bf16: true' \
    'recompute: offload' 'over_length: truncate' 'train_sampling_strategy: sequential' 'report_to: wandb' \
    'eos_token: "</s>"' 'sharding_strategy: SHARD_GRAD_OP'
# No adapter: all weights; a share of rows that nothing evaluates is held out there too.
axolotl <<'END'
datasets:
  - path: rows.txt
    type: completion
    field: body
val_set_size: 5
fp16: true
bf16: false
END
expect 0 '' convert-config axolotl.yaml
gives 'use_peft: false' 'dataset_text_field: body' 'assistant_only_loss: false' 'eval_split_size: 5' 'eval_strategy: epoch' 'fp16: true'
# Words in YAML's other spellings, zeros that say nothing, axolotl's Muon and its warm-up.
axolotl <<'END'
adapter: lora
lora_target_linear: yes
datasets:
  - {path: rows.jsonl, type: alpaca}
tokens: []
shuffle_merged_datasets: false
max_steps: 10000
save_steps: 0
save_total_limit: 0
optimizer: muon
END
expect 0 'five triples' convert-config axolotl.yaml
gives 'lora_target_modules: all-linear' 'warmup_steps: 100' 'save_strategy: epoch' 'save_total_limit: 4' 'optim: muon' \
    'adjust_lr_fn: spectral_unclamped' 'adam_beta2: 0.95'
lacks train_sampling_strategy
# The settings of a second data set are those of the run.
axolotl <<'END'
adapter: lora
datasets:
  - {path: a.jsonl, type: chat_template, chat_template: chatml, train_on_eos: turn}
  - {path: b.jsonl, type: chat_template, chat_template: gemma, train_on_eos: turn}
  - {path: c.jsonl, type: {format: "Q: {instruction}", system_format: "<s>{system}</s>"}}
END
expect 2 'data sets of several types or settings' convert-config axolotl.yaml
axolotl <<'END'
adapter: lora
datasets:
  - {path: c.jsonl, type: {format: "Q: {instruction}", system_format: "<s>{system}</s>", no_such_key: 3}}
END
expect 2 'axolotl.yaml: 2 keys of axolotl cannot be carried over:' convert-config axolotl.yaml
# A prompt of the user's own, preferences, a template of its own.
axolotl <<'END'
adapter: lora
datasets:
  - path: rows.jsonl
    type:
      system_prompt: "Be brief. "
      field_instruction: question
      field_output: answer
      format: "{x} Q: {instruction} A: "
      no_input_format: "{x} Q: {instruction} A: "
END
expect 0 '' convert-config axolotl.yaml
gives 'prompt_template: "Be brief. {{x} Q: {question} A: "' 'dataset_completion_field: answer'
axolotl <<'END'
adapter: lora
rl: ipo
rl_beta: 0.2
chat_template_jinja: "{% for m in messages %}{{ m.content }}{% endfor %}"
datasets:
  - path: rows.jsonl
    type: chat_template.default
    field_messages: conversation
    drop_system_message: true
END
expect 0 '' convert-config axolotl.yaml
gives 'objective: dpo' 'loss_type: ipo' 'beta: 0.2' 'drop_system_message: true' \
    'chat_template: "{% for m in messages %}{{ m.content }}{% endfor %}"'
lacks assistant_only_loss

axolotl <<'END'
adapter: lora
rl: orpo
orpo_alpha: 0.3
datasets:
  - {path: rows.jsonl, type: chat_template.argilla}
END
expect 0 '' convert-config axolotl.yaml
gives 'objective: orpo' 'beta: 0.3'
lacks loss_type

axolotl <<'END'
adapter: lora
rl: simpo
rl_beta: 2.0
cpo_alpha: 0.5
simpo_gamma: 1.2
datasets:
  - {path: rows.jsonl, type: chat_template.argilla}
END
expect 0 '' convert-config axolotl.yaml
gives 'objective: cpo' 'loss_type: simpo' 'beta: 2' 'cpo_alpha: 0.5' 'simpo_gamma: 1.2'

# All that is not carried over, in one error; nothing is written.
axolotl <<'END'
adapter: lora
datasets:
  - path: rows.jsonl
    type: input_output
    shards: 2
  - path: more.jsonl
    type: alpaca
    field_instruction: question
relora_steps: 10
s2_attention: true
dataset_shards: 3
optimizer: no_such_rule
lora_model_dir:
lr_scheduler: rex
rl: grpo
END
expect 2 'axolotl.yaml: 9 keys of axolotl cannot be carried over:' convert-config axolotl.yaml --output ours.yaml
for word in 'line 6, type: ' 'line 7, shards: ' \
    'line 10, field_instruction: name the column of the rows instruction' \
    'line 11, relora_steps: merge and train again' 'line 12, s2_attention: remove it: attention is exact' \
    "line 13, dataset_shards: no setting stands" "line 14, optimizer: 'optim' " 'line 17, rl: objective: dpo, orpo, cpo, kto or sft'; do
    grep -qF -- "$word" err || fail "no '$word' in:" "$(cat err)"
done
[ ! -e ours.yaml ] || fail "a file in spite of an error"
sed -i -e '/rl: grpo/d' -e '/input_output/s/input_output/alpaca/' axolotl.yaml
expect 0 'warning: line 12, s2_attention' convert-config axolotl.yaml --output ours.yaml --partial true
grep -qF '# - line 12, s2_attention: remove it: attention is exact' ours.yaml || fail "no comment:" "$(cat ours.yaml)"
grep -q '^lora_dropout: 0 ' ours.yaml || fail "the rest is missing:" "$(cat ours.yaml)"

axolotl <<'END'
datasets:
  - {path: a.jsonl, type: alpaca}
  - {path: b.jsonl, type: chat_template}
END
expect 2 'type: data sets of several types or settings: write the rows of all in one form' convert-config axolotl.yaml

# LLaMA-Factory: defaults, the names of its data sets, their columns.
mkdir data
cat >data/dataset_info.json <<'END'
{"one": {"file_name": "one.json"}, "two": {"hf_hub_url": "owner/two", "split": "extra"},
 "other": {"file_name": "o.json", "columns": {"prompt": "question", "response": "answer"}, "subset": "en"},
 "ranked": {"file_name": "r.json", "ranking": true, "columns": {"prompt": "instruction", "chosen": "chosen", "rejected": "rejected"}}}
END
printf 'model_name_or_path: m\nstage: sft\nfinetuning_type: lora\ndataset: one\n' >factory.yaml
expect 0 '' convert-config factory.yaml
gives 'dataset_name: data/one.json' 'lora_r: 8' 'lora_alpha: 16' 'lora_dropout: 0' 'lora_target_modules: all-linear' \
    'max_length: 2048' 'learning_rate: 5.0e-05' 'assistant_only_loss: true' 'objective: sft' 'use_peft: true'
lacks num_train_epochs lr_scheduler_type chat_template bnb_4bit_quant_type
cat >factory.yaml <<'END'
model_name_or_path: m
stage: dpo
finetuning_type: lora
lora_rank: 32
lora_target: [q_proj, v_proj]
pref_beta: 0.3
pref_loss: hinge
quantization_bit: 4
quantization_method: bnb
dataset: one, two
template: chatml
cutoff_len: 128
max_samples: 7
val_size: 3
deepspeed: examples/deepspeed/ds_z3_offload_config.json
additional_target: embed_tokens
pissa_init: true
disable_shuffling: true
END
expect 0 '' convert-config factory.yaml
gives 'datasets: [{"path": "data/one.json"}, {"path": "owner/two", "split": "extra"}]' 'lora_r: 32' 'lora_alpha: 64' \
    'lora_target_modules: ["q_proj", "v_proj"]' 'objective: dpo' 'beta: 0.3' 'loss_type: hinge' 'load_in_4bit: true' \
    'bnb_4bit_quant_type: nf4' 'bnb_4bit_use_double_quant: true' 'chat_template: chatml' 'max_length: 128' \
    'max_source_samples: 7' 'eval_split_size: 3' 'eval_strategy: epoch' 'sharding_strategy: FULL_SHARD' 'offload_params: true' \
    'lora_modules_to_save: embed_tokens' 'init_lora_weights: pissa_niter_16' 'train_sampling_strategy: sequential' 'learning_rate: 5.0e-05'
lacks assistant_only_loss
cat >factory.yaml <<'END'
model_name_or_path: m
stage: sft
finetuning_type: freeze
dataset: other,ranked,nowhere
template: vicuna
shift_attn: true
pref_loss: orpo
END
expect 2 'cannot be carried over' convert-config factory.yaml
for word in "finetuning_type: use_peft: true for lora, false for full" "data set other has subset" \
    "data set other has prompt as 'question'" "data set other has response as 'answer'" "data set ranked prefers answers" \
    "has no data set 'nowhere'" "template: remove it where" "shift_attn: remove it"; do
    grep -qF -- "$word" err || fail "no '$word' in:" "$(cat err)"
done
printf 'model_name_or_path: m\nstage: dpo\ndataset: one\npref_loss: orpo\npref_beta: 0.2\n' >factory.yaml
expect 0 '' convert-config factory.yaml
gives 'objective: orpo' 'beta: 0.2'
lacks loss_type
printf 'model_name_or_path: m\nstage: dpo\ndataset: one\npref_loss: simpo\nsimpo_gamma: 0.7\n' >factory.yaml
expect 0 '' convert-config factory.yaml
gives 'objective: cpo' 'loss_type: simpo' 'cpo_alpha: 0' 'simpo_gamma: 0.7'
rm data/dataset_info.json
expect 3 "No such file" convert-config factory.yaml
expect 3 "names of data sets are looked up in dataset_info.json of dataset_dir" convert-config factory.yaml

# Which program; files that are none.
printf 'model_name_or_path: m\nlearning_rate: 1\n' >ours.yaml
expect 2 'ours.yaml has no key of axolotl or LLaMA-Factory' convert-config ours.yaml
expect 2 "setting 'dataset_name' is missing" convert-config ours.yaml --from axolotl
expect 2 "takes one of: axolotl llama-factory" convert-config ours.yaml --from trl
expect 2 "convert-config needs a file" convert-config
expect 3 "No such file" convert-config nowhere.yaml
printf -- '- a\n' >list.yaml
expect 2 "a configuration is lines of 'key: value'" convert-config list.yaml
expect 2 "did you mean 'trimtab convert-config'" convert_config

# What the rows become: axolotl's prompt of Alpaca and the tokens that train.
cp -r "$root/tests/golden/qwen2/model" model && cp "$root"/tests/support/tiny_tokenizer/* model/ && chmod -R u+w model
sed -i 's/"max_position_embeddings": [0-9]*/"max_position_embeddings": 1024/' model/config.json
cat >rows.jsonl <<'END'
{"instruction": "Add one.", "input": "7", "output": "8"}
{"instruction": "Say two.", "input": "", "output": "2"}
END
expect 0 '' data --model_name_or_path model --dataset_name rows.jsonl --chat_template alpaca --assistant_only_loss --json --max_length 1024
sed -E 's/.*"samples": \[//' printed >samples
for text in '<s>Below is an instruction that describes a task, paired with an input that provides further context. Write a response that appropriately completes the request.\n\n### Instruction:\nAdd one.\n\n### Input:\n7\n\n### Response:\n"' \
    '<s>Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n### Instruction:\nSay two.\n\n### Response:\n"' '8</s>' '2</s>'; do
    grep -qF -- "$text" printed || fail "no '$text' in:" "$(cat printed)"
done
# Names of templates; texts; what is neither.
echo '{"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": " 1 + 1?"}, {"role": "assistant", "content": "2"}]}' >chat.jsonl
text_of() {
    expect 0 '' data --model_name_or_path model --dataset_name chat.jsonl --max_length 1024 "$@"
    grep -oE '"text": "[^"]*"' printed | sed -E 's/"text": "(.*)"/\1/' | tr -d '\n'
}
[ "$(text_of --json --chat_template llama3)" = '<s><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n1 + 1?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n2<|eot_id|>' ] ||
    fail "llama3: $(text_of --json --chat_template llama3)"
[ "$(text_of --json --chat_template chatml)" = '<|im_start|>system\nS<|im_end|>\n<|im_start|>user\n 1 + 1?<|im_end|>\n<|im_start|>assistant\n2<|im_end|>\n' ] ||
    fail "chatml: $(text_of --json --chat_template chatml)"
[ "$(text_of --json --chat_template gemma --drop_system_message)" = '<s><start_of_turn>user\n1 + 1?<end_of_turn>\n<start_of_turn>model\n2<end_of_turn>\n' ] ||
    fail "gemma: $(text_of --json --chat_template gemma --drop_system_message)"
[ "$(text_of --json --chat_template '{{ messages[2].content }} it is')" = '2 it is' ] || fail "a template as text"
expect 3 "gemma has no system messages" data --model_name_or_path model --dataset_name chat.jsonl --chat_template gemma
expect 2 "chat_template 'vicuna' is no template, and no template has this name" data --model_name_or_path model \
    --dataset_name chat.jsonl --chat_template vicuna
expect 2 "chat_template and chat_template_path are both given" data --model_name_or_path model \
    --dataset_name chat.jsonl --chat_template llama3 --chat_template_path chat.jsonl
echo '{"messages": [{"role": "system", "content": "S"}]}' >alone.jsonl
expect 3 "drop_system_message leaves no message" data --model_name_or_path model --dataset_name alone.jsonl --chat_template chatml \
    --drop_system_message
# So many rows of each source, of one and of several files, and no more than max_train_samples of all.
mkdir parts
for part in 1 2; do for i in $(seq 5); do echo "{\"text\": \"$part $i\"}"; done >parts/train-$part.jsonl; done
for i in $(seq 9); do echo "{\"text\": \"row $i\"}"; done >more.jsonl
count() {
    expect 0 '' data --model_name_or_path model --datasets '[{"path": "parts"}, {"path": "more.jsonl"}]' --rows 0 --json "$@"
    grep -oE '"rows": [0-9]+' printed | head -n 1
}
[ "$(count)" = '"rows": 19' ] || fail "all rows: $(count)"
[ "$(count --max_source_samples 7)" = '"rows": 14' ] || fail "7 of each source: $(count --max_source_samples 7)"
[ "$(count --max_source_samples 3)" = '"rows": 6' ] || fail "3 of each source: $(count --max_source_samples 3)"
[ "$(count --max_source_samples 7 --max_train_samples 9)" = '"rows": 9' ] || fail "7 of each source, 9 of all"
finish
