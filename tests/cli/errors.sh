#!/bin/bash
# Every wrong command line ends with its exit code, one error and a hint.
source "$(dirname "$0")/../tools/command_line.sh" "$1"

cat >good.yaml <<'END'
model_name_or_path: model
dataset_name: data.jsonl
learning_rate: 2e-5
END
printf 'model_name_or_path: m\nlearning_rat: 1\n' >unknown.yaml
printf 'a: [1\n' >broken.yaml
printf 'learning_rate: 1\nlearning_rate: 2\n' >double.yaml
printf 'distributed_type: FSDP\nfsdp_config: {fsdp_shardings: 1}\n' >fsdp.yaml
printf '\x00\x01' >zero.safetensors
head -c 64 /dev/zero >empty.safetensors
mkdir folder

expect 2 "there is no command 'trian'" trian
expect 2 "did you mean 'trimtab train'" trian
# A training by the name of its objective, as TRL's commands.
for objective in sft dpo orpo cpo kto reward classification; do
    expect 2 "setting 'model_name_or_path' is missing" $objective
    expect 2 "setting 'dataset_name' is missing" $objective --model_name_or_path m
done
expect 0 "usage: trimtab train" help kto
expect 0 "usage: trimtab train" kto --help
expect 0 "objective: kto" kto --model_name_or_path m --dataset_name d --output_dir o --print_config
expect 2 "the command is 'kto', and --objective says another objective" kto --model_name_or_path m --objective dpo
expect 2 "did you mean 'trimtab export gguf'" convert
expect 2 "flags begin with two dashes" train model
expect 2 "use_vllm is a key of TRL's GRPOTrainer; here: remove it" train --use_vllm
expect 2 "setting 'model_name_or_path' is missing" train
expect 2 "setting 'dataset_name' is missing" train --model_name_or_path m
expect 2 "did you mean 'learning_rate'" train --learning_rat 1
expect 2 "unknown.yaml line 2: there is no setting 'learning_rat'" train --config unknown.yaml
# Keys of other trainers: all of a file at once, each with what takes its place.
cat >factory.yaml <<'END'
model_name_or_path: m
stage: sft
lora_rank: 8
cutoff_len: 2048
learning_rate: 1.0e-4
END
expect 2 "factory.yaml line 2: there is no setting 'stage': stage is a key of LLaMA-Factory; here: objective: sft or dpo" \
    train --config factory.yaml
expect 2 "  - factory.yaml line 3: there is no setting 'lora_rank': lora_rank is a key of LLaMA-Factory; here: lora_r" \
    train --config factory.yaml
expect 2 'hint: some are keys of LLaMA-Factory: trimtab convert-config FILE writes ours for them' train --config factory.yaml
printf 'model_name_or_path: m\nsequence_len: 1\n' >one.yaml
expect 2 "one.yaml line 2: there is no setting 'sequence_len'" train --config one.yaml
expect 2 "hint: sequence_len is a key of axolotl; here: max_length" train --config one.yaml
expect 2 "hint: lora_target is a key of LLaMA-Factory; here: lora_target_modules; all is all-linear here" \
    train --lora_target all
# Every wrong setting of a call in one error: of its files, of its flags, of any kind.
printf 'use_qalora: true\nlearning_rate: fast\nmicro_batch_size: 2\nlearning_rat: 1\n' >four.yaml
expect 2 'error: 6 errors in the settings:' train --config four.yaml --packing maybe --max_prompt_length 512
for line in "four.yaml line 1: 'use_qalora' supports only: false; not 'true': QA-LoRA is not supported" \
    "four.yaml line 2: 'learning_rate' takes a number, not 'fast'" \
    "four.yaml line 3: there is no setting 'micro_batch_size': micro_batch_size is a key of axolotl; here: per_device_train_batch_size" \
    "four.yaml line 4: there is no setting 'learning_rat': did you mean 'learning_rate'?" \
    "--packing: 'packing' takes true or false, not 'maybe'" \
    "--max_prompt_length: 'max_prompt_length' supports only: null"; do
    grep -qF -- "  - $line" err || fail "an error without '$line':" "$(cat err)"
done
"$trimtab" train --config four.yaml --log_format json 2>&1 | grep -qF '"items": ["four.yaml line 1: ' || fail "the list as JSON"
expect 2 "discopop_tau is given, and the objective is sft" train --model_name_or_path m --dataset_name d --beta 0.5 --discopop_tau 1
grep -qF "beta is given, and the objective is sft" err || fail "one of two settings of another objective:" "$(cat err)"
for i in $(seq 200); do echo "some_key_$i: 1"; done >many.yaml
expect 2 ' more, named above' train --config many.yaml
for i in $(seq 200); do
    [ "$(grep -c "'some_key_$i'" err)" = 1 ] || fail "key $i of 200 unknown ones is not named once:" "$(cat err)"
done
grep -q "^warning: many.yaml line 200: there is no setting 'some_key_200'" err || fail "a key without its line:" "$(cat err)"
# Keys of other trainers that say nothing here.
printf 'model_name_or_path: m\ndataset_name: d\nflash_attention: true\nwandb_project:\ns2_attention: false\nfsdp: [full_shard, auto_wrap]\n' >idle.yaml
expect 0 'flash_attention is accepted without effect: attention is always computed in blocks (idle.yaml line 3)' \
    train --config idle.yaml --print_config
grep -qF 'wandb_project is accepted without effect: it has no value (idle.yaml line 4)' err || fail "an empty key:" "$(cat err)"
grep -qF 's2_attention is accepted without effect: it is off (idle.yaml line 5)' err || fail "a key that is off:" "$(cat err)"
grep -q '^sharding_strategy: FULL_SHARD  # fsdp (idle.yaml line 6)' printed || fail "fsdp as a list:" "$(cat printed)"
expect 2 's2_attention is a key of axolotl; here: remove it: attention is exact' train --s2_attention true
"$trimtab" train --help >settings
keys=0
for setting in $(grep -v '^VALUE' "$root/src/config/elsewhere.def" | tr '\n' ' ' | sed -E 's/(NAMED|WORDS|ELSEWHERE)\("/\n/g; s/(NOTHING|OFF)\("[^)]*//g' |
    sed -nE 's/^[^"]*", +"[^"]*", +"([^"]*)".*/\1/p'); do
    keys=$((keys + 1))
    grep -q -- "--$setting " settings || fail "elsewhere.def names '$setting', which is no setting of train"
done
# Values of other trainers, and words that are no format.
for setting in $(sed -nE 's/^VALUE\("([^"]*)".*/\1/p' "$root/src/config/elsewhere.def"); do
    grep -q -- "--$setting " settings || fail "elsewhere.def has a value of '$setting', which is no setting of train"
done
expect 2 "hint: unsloth is a value of Unsloth and axolotl; here: recompute: offload" train --gradient_checkpointing unsloth
expect 2 "takes true, false or null, not 'unsloth'" train --gradient_checkpointing unsloth
printf 'base_model: m\n' | sed 's/base_model/model_name_or_path/; $a adapter: lora' >adapter.yaml
expect 2 "adapter.yaml line 2: 'adapter_name_or_path' has no 'lora'" train --config adapter.yaml
expect 2 "hint: lora is a value of axolotl; here: remove it: LoRA is what trains" train --config adapter.yaml
expect 2 "here: load_in_4bit: true" train --adapter qlora
mkdir lora
expect 0 "adapter_name_or_path: lora" train --adapter lora --model_name_or_path m --dataset_name d.jsonl --output_dir o --print_config
rmdir lora
expect 2 "hint: give --model_name_or_path or --config_json, or a line" plan
expect 2 "hint: give --model_name_or_path, or a line" train
expect 2 "export needs a format, before its flags" export --model m
expect 2 "hint: trimtab export gguf --model_name_or_path FOLDER" export --model m
expect 2 "hint: the adapter alone: trimtab export gguf --adapter_only true" export lora
expect 2 "trimtab merge" export safetensors
expect 2 "trimtab quantize" export int8
for key in train_type agent_template excess_length_strategy; do
    expect 2 "hint: $key is a key of " train --$key x
done
[ $keys -gt 25 ] || fail "the keys of elsewhere.def were not found"
expect 2 "broken.yaml line" train --config broken.yaml
expect 2 "given before, at line 1" train --config double.yaml
expect 3 "No such file" train --config nowhere.yaml
expect 2 "'learning_rate' takes a number, not 'fast'" train --learning_rate fast
expect 2 "'max_steps' takes a whole number" train --max_steps 1.5
expect 2 "'bf16' takes true or false" train --bf16 perhaps
printf 'model_name_or_path: m\ndataset_name: d\nbf16: auto\nfp16:\n' >auto.yaml
expect 0 "bf16: true  # auto.yaml line 3" train --config auto.yaml --print_config
half='computes in bfloat16, which needs no loss scaling'
expect 0 "fp16: the run $half" train --config auto.yaml --fp16 --print_config
expect 0 "bf16: true  # fp16" train --config auto.yaml --fp16 --bf16 false --print_config
expect 0 "the quantized linears compute in bfloat16 like all others" train --config auto.yaml --load_in_4bit \
    --bnb_4bit_compute_dtype float16 --print_config
expect 0 "dtype is accepted without effect: frozen weights" train --config auto.yaml --torch_dtype float16 --print_config
expect 2 "hint: float16 is a key of axolotl; here: fp16" train --config auto.yaml --float16 true
expect 2 "takes one value" train --seed 1 2
expect 2 "--seed needs a value" train --seed
expect 2 "write --resume_from_checkpoint TEXT. The checkpoint folder to resume from; true or latest:" \
    train --resume_from_checkpoint
expect 2 "hint: types that need an importance matrix, as iq4_xs, are made from the file of outtype f32 by llama.cpp: " \
    export gguf --model_name_or_path m --output_file m.gguf --outtype iq4_xs
expect 2 "write --outtype TEXT. Type of matrices: auto (theirs in the model), f32, f16, bf16, q8_0, q6_k, q5_k_m, " \
    export gguf --outtype
expect 2 "write --prompt TEXT, or --prompt=--VALUE for one that begins with two dashes. " generate --prompt --seed 1
expect 2 "unexpected argument 'word': a flag is expected" train word
expect 2 "'ignore_data_skip' supports only: false" train --ignore_data_skip
expect 2 "there is no key 'fsdp_shardings'" train --config good.yaml --config_file fsdp.yaml
expect 2 "while reading accelerate's configuration 'fsdp.yaml'" train --config good.yaml --config_file fsdp.yaml
expect 3 "nowhere.yaml" train --config good.yaml --config_file nowhere.yaml
expect 2 "has no distributed_type" train --config good.yaml --config_file good.yaml
expect 3 "model" train --config good.yaml --output_dir out
expect 2 "setting 'model_name_or_path' is missing" eval
expect 2 "there is no evaluation data" eval --model_name_or_path m
expect 3 "nowhere" eval --model_name_or_path nowhere --eval_dataset data.jsonl
expect 2 "there is no prompt" generate --model_name_or_path m
# Every command refuses settings that contradict each other.
expect 2 "'fsdp' has an unknown word 'no_such_word'" eval --model_name_or_path m --eval_dataset data.jsonl \
    --num_processes 2 --fsdp no_such_word
expect 2 "use_cpu is on, and device is cuda" eval --model_name_or_path m --eval_dataset data.jsonl --use_cpu true --device cuda
expect 2 "use_cpu is on, and device is cuda" generate --model_name_or_path m --prompt x --use_cpu --device cuda
expect 2 "'fsdp' has an unknown word 'no_such_word'" bench train --config_json "$root/bench/shapes/tiny.json" \
    --num_processes 2 --fsdp no_such_word
expect 0 "ranks: 2  # num_processes (--num_processes)" eval --model_name_or_path m --eval_dataset data.jsonl --num_processes 2 --print_config
expect 3 "nowhere" generate --model_name_or_path nowhere --prompt hello
expect 2 "inspect needs a path" inspect
expect 2 "inspect takes one path" inspect a b
expect 3 "nowhere" inspect nowhere
# A missing model: the same message and the same hint from every command.
nowhere=no/where/at_all
for words in "inspect $nowhere" "inspect --model_name_or_path $nowhere" "plan --model_name_or_path $nowhere" \
    "generate --model_name_or_path $nowhere --prompt hello" "eval --model_name_or_path $nowhere --eval_dataset data.jsonl" \
    "train --model_name_or_path $nowhere --dataset_name data.jsonl --output_dir out" \
    "merge --model_name_or_path $nowhere --adapter_name_or_path a --output_dir out" \
    "quantize --model_name_or_path $nowhere --output_dir out" \
    "export gguf --model_name_or_path $nowhere --output_file out"; do
    # shellcheck disable=SC2086
    expect 3 "error: the model folder '$nowhere' does not exist" $words
    # shellcheck disable=SC2086
    expect 3 "  hint: models are read from a local folder" $words
done
echo '{"input_ids": [1]}' >one_token.jsonl
expect 3 "while loading the evaluation data" eval --model_name_or_path "$root/examples/demo/model" --eval_dataset one_token.jsonl
expect 2 "lora_alpha is 1e+38; it must be above 0 and below 1e9" train --model_name_or_path "$root/examples/demo/model" \
    --dataset_name "$root/examples/demo/data/test.jsonl" --output_dir out --lora_alpha 1e38
expect 2 "in YAML write the list without quotes around it" train --model_name_or_path "$root/examples/demo/model" \
    --dataset_name "$root/examples/demo/data/test.jsonl" --output_dir out --lora_target_modules '[q_proj]'
expect 2 "'quantization_config' is not a mapping: '{bad'" train --config good.yaml --quantization_config '{bad'
expect 3 "the folder 'nowhere' does not exist" checkpoint consolidate nowhere --output_dir out
cp -r "$root/examples/demo/model" wrong_flag
sed -i '0,/"normalized": *false/s//"normalized": 1/' wrong_flag/tokenizer.json
expect 3 "'added_tokens[0].normalized' must be true or false" generate --model_name_or_path wrong_flag --prompt x
expect 0 "Required where" plan --help
expect 0 "Required where task is not" train --help
expect 3 "folder" inspect folder
expect 3 "zero.safetensors" inspect zero.safetensors
expect 3 "empty.safetensors" inspect empty.safetensors
printf '\t- x' >tab.yaml
expect 2 "  while scanning for the next token" train --config tab.yaml
expect 2 "or set bf16 to true" train --config good.yaml --load_in_4bit --bnb_4bit_compute_dtype float16 --bf16 false
expect 2 "or set bf16 to false" train --config good.yaml --load_in_4bit --bnb_4bit_compute_dtype float32
expect 2 "lr_scheduler_kwargs: '{bad' is not a mapping" train --config good.yaml --lr_scheduler_kwargs '{bad'
expect 2 "row_tokens_min 10 is more than row_tokens_max 5" bench train --row_tokens_min 10 --row_tokens_max 5 \
    --config_json "$root/bench/shapes/tiny.json" --device cpu
expect 2 "help takes one command" help nothing
expect 2 "checkpoint needs an operation" checkpoint
expect 2 "trimtab checkpoint ls FOLDER" checkpoint list folder
# The help names every schedule that the error for a wrong one names, in one error with other wrong values.
expect 2 "2 errors in the settings" train --config good.yaml --lr_scheduler_type reduce_lr_on_plateau --optim adafactor
grep -q "write cosine, or constant" err || fail "nothing is said to write instead: $(cat err)"
names=$(sed -n "s/.*'lr_scheduler_type' supports only: \\(.*\\); not.*/\\1/p" err)
[ "$(wc -w <<<"$names")" -ge 9 ] || fail "not nine schedules: $names"
for name in $names; do
    "$trimtab" train --help | grep -qw "$name" || fail "no $name in the help"
done
# The descriptions in the list of commands are true.
words=$("$trimtab" --help | sed -n 's/^  checkpoint .*: //p' | tr -d ,)
[ "$(wc -w <<<"$words")" -ge 3 ] || fail "not three things that checkpoint does: $words"
for word in $words; do
    expect 2 "checkpoint $word needs a folder" checkpoint "$word"
done
expect 0 "" --version
expect 0 "" --help

# With a model: faults in its files and folders.
cp -r "$root/tests/golden/qwen2/model" base && cp "$root"/tests/support/tiny_tokenizer/* base/ && cp "$root/bench/shapes/tiny.json" .
printf '{"text": "1 + 1 = 2"}\n' >data.jsonl
train=(train --model_name_or_path base --max_steps 1 --dataset_name)
expect 3 "rows are read from local .jsonl" "${train[@]}" somebody/dataset
# How devices compute reaches the device of every kind of job.
if ! grep -qm1 amx_bf16 /proc/cpuinfo; then
    for words in "${train[*]} data.jsonl --output_dir amx" "eval --model_name_or_path base --eval_dataset data.jsonl" \
        "generate --model_name_or_path base --prompt 1" "bench train --config_json tiny.json"; do
        # shellcheck disable=SC2086
        TRIMTAB_CPU_ISA=amx expect 2 "error: cpu_isa asks for amx, this processor has" $words --device cpu
    done
fi
expect 2 "output_dir './base' is the folder of the base model" "${train[@]}" data.jsonl --output_dir ./base \
    --overwrite_output_dir --use_peft false
cmp base/model.safetensors "$root/tests/golden/qwen2/model/model.safetensors" || fail "the base model was changed"
# Rows that are nearly right: the error says what they are instead.
printf '{"mesages": [{"role": "user", "content": "1"}]}\n' >misspelt.jsonl
expect 3 "hint: 'mesages' may be a misspelt 'messages'" "${train[@]}" misspelt.jsonl
echo '{"data": [{"prompt": "a", "completion": "b"}]}' >inside.json
expect 3 "if the rows of the file are the list 'data': jq -c '.[\"data\"][]' FILE >rows.jsonl" "${train[@]}" inside.json
printf 'prompt;completion\na;b\n' >semicolons.csv
expect 3 "sep=';').to_csv('train.csv', index=False)" "${train[@]}" semicolons.csv
printf 'prompt\tcompletion\na\tb\n' >tabs.csv
expect 3 "sep='\t').to_csv('train.csv', index=False)" "${train[@]}" tabs.csv
printf '1 + 1 =\t2\n' >tabs.jsonl
expect 3 "hint: a row is a JSON object on one line" "${train[@]}" tabs.jsonl
printf "{'text': '1 + 1'}\r\n" >python.jsonl
expect 3 "hint: JSON has double quotes" "${train[@]}" python.jsonl
printf '{"text": "1 + 1 = \r\n' >cut.jsonl
expect 3 "hint: a row is one JSON object on one line, and this one is cut off" "${train[@]}" cut.jsonl
expect 3 "hint: a file lies at this path or above it" "${train[@]}" data.jsonl --output_dir data.jsonl/out
expect 3 "hint: it looks like JSON" inspect data.jsonl
expect 3 "hint: the folder of the output must exist" export gguf --model_name_or_path base --output_file nowhere/base.gguf
expect 3 "hint: messages are a file, or a list" generate --model_name_or_path base --messages 'What is 1 + 1?'
printf 'GGUF\003\000\000\000' >base.gguf
expect 3 "hint: it is a GGUF file" inspect base.gguf
mkfifo pipe.jsonl pipe.safetensors
expect 3 "'pipe.jsonl' is a pipe" "${train[@]}" pipe.jsonl
expect 3 "'pipe.safetensors' is a pipe" inspect pipe.safetensors
mkfifo pipe.yaml folder/adapter_config.json
expect 3 "'pipe.yaml' is a pipe" train --config pipe.yaml
expect 3 "'pipe.yaml' is a pipe" train --config good.yaml --config_file pipe.yaml
expect 3 "'/dev/zero' is a device" train --config /dev/zero
expect 3 "'/dev/zero' is a device" generate --model_name_or_path base --prompt_file /dev/zero
expect 3 "'folder/adapter_config.json' is a pipe" inspect folder
expect 3 "'folder/adapter_config.json' is a pipe" merge --model_name_or_path base --adapter folder --output_dir merged
cp -r base piped && mkfifo piped/merges.txt piped/notes.md
expect 3 "'piped/merges.txt' is a pipe" quantize --model_name_or_path piped --output_dir quantized
rm piped/merges.txt
expect 3 "'piped/notes.md' is a pipe" merge --model_name_or_path piped --adapter "$root/tests/golden/qwen2/adapter_random" \
    --output_dir merged
[ ! -e merged ] && [ ! -e quantized ] || fail "something was written from a folder that holds a pipe"
# A checkpoint with a pipe as its manifest.
mkdir checkpoint-1 && mkfifo checkpoint-1/manifest.json
expect 3 "is a pipe" checkpoint verify checkpoint-1
# A stop before the first step: rank 0 waits for another that never joins.
RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + $$ % 9000)) "$trimtab" train \
    --model_name_or_path base --dataset_name data.jsonl --output_dir early --max_steps 1 >printed 2>err &
run=$!
caught=0
for ((i = 0; i < 600 && !(0x$caught & 2); i++)); do
    sleep 0.1
    caught=$(sed -n 's/^SigCgt:[[:space:]]*//p' /proc/$run/status)
done
kill -INT $run
wait $run && fail "a run that was stopped before its first step is done"
grep -q "the same command starts it again" err || fail "an early stop:" "$(cat err)"
expect 0 "done: 1 step, " train --model_name_or_path base --dataset_name data.jsonl --output_dir early --max_steps 1
grep -qF "try it: trimtab generate --model_name_or_path base --adapter_name_or_path early --prompt" printed err || fail "no command that tries the result"
expect 0 "--model_name_or_path base --load_in_4bit true --adapter_name_or_path bits" train --model_name_or_path base \
    --dataset_name data.jsonl --output_dir bits --max_steps 1 --load_in_4bit true
expect 2 "gpus is a key of Slurm; here: ranks" train --model_name_or_path base --dataset_name data.jsonl --output_dir no --gpus 2
printf '{"text": "1 + 1 = 2"%33000000s}\n{"text": "1 + 2 = 3"%2000000s}\n' '' '' >large.jsonl
expect 0 "reading 'large.jsonl' (33.4 MiB)" "${train[@]}" large.jsonl --output_dir large --max_steps 1
printf '{"prompt": "1 + 1 =", "completion": ""}\n' >empty.jsonl
expect 0 "1 + 1 =[[</s>]]" "${train[@]}" empty.jsonl --output_dir end
expect 0 "'early' has its own rank (16), alpha (32) and targets; the lora_* settings of the run are ignored" \
    "${train[@]}" data.jsonl --adapter early --lora_r 4 --output_dir later
expect 0 "" quantize --model_name_or_path base --output_dir quantized --llm_int8_skip_modules down_proj
grep -q '"down_proj"' quantized/config.json || fail "down_proj was not left as it was"
expect 2 "to is fp8, and other settings name another format" quantize --model_name_or_path base --output_dir fp8 --to fp8 --load_in_8bit true
expect 2 "hint: load_in_4bit is a key of trimtab train; here: remove it" quantize --model_name_or_path base --output_dir nf4 --load_in_4bit true
expect 2 "to is int8" quantize --model_name_or_path base --output_dir fp8 --to int8 --bnb_4bit_quant_type fp4
expect 0 "" quantize --model_name_or_path base --output_dir fp8 --to fp8 --llm_int8_skip_modules '["o_proj", "model.layers.0.mlp"]'
grep -qF '"re:((model.layers.0.mlp)((?<=\\.)|(?=\\.|$))|.*model\\.layers\\.0\\.mlp$)"' fp8/config.json || fail "the modules of layer 0 are not ignored"
expect 0 "as the folder has them" train --model_name_or_path fp8 --dataset_name data.jsonl --output_dir fp8-adapter --max_steps 1
expect 0 "llm_int8_skip_modules is not used" eval --model_name_or_path fp8 --eval_dataset data.jsonl --llm_int8_skip_modules o_proj
expect 2 "are fp8 already" quantize --model_name_or_path fp8 --output_dir again --to nf4
expect 2 "hint: it is trained, evaluated and served as it is" quantize --model_name_or_path fp8 --output_dir again --to nf4
expect 2 "the weights of this model are fp8 already" train --model_name_or_path fp8 --dataset_name data.jsonl --output_dir out --load_in_4bit true
finish
