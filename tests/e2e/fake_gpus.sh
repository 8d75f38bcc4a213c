#!/bin/bash
# The program's handling of GPUs, on fake GPUs (tests/tools/fake_gpus.c): devices are chosen, ranks connect and give
# the same bits as ranks on CPUs, and one that fails ends the others.
build=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
failures=0
source "$root/tests/tools/pretend_plugin.sh" "$build" fake_gpus

train() {
    local output=$1
    shift
    timeout 100 "$build/trimtab" train --model_name_or_path "$root/tests/golden/llama2/model" --threads 1 \
        --dataset_name "$root/tests/golden/llama2/train.jsonl" --max_steps 6 --per_device_train_batch_size 2 --bf16 false \
        --learning_rate 0.01 --recompute none --save_steps 3 --unsharded_blocks 0 --output_dir "$output" "$@" >said 2>&1
}
same() { cmp -s "$1" "$2" || fail "$1 and $2 differ"; }

train cpu2 --device cpu --ranks 2 || fail "two ranks on the CPU"
train gpu2 --ranks 2 || fail "two ranks on GPUs"
grep -q "on 2 ranks" said || fail "two ranks, not said"
same cpu2/adapter_model.safetensors gpu2/adapter_model.safetensors
same cpu2/checkpoint-3/adapter_model.safetensors gpu2/checkpoint-3/adapter_model.safetensors
FAKE_PEER=1 train pulled --ranks 2 || fail "two ranks that pull each other's shards"
same cpu2/adapter_model.safetensors pulled/adapter_model.safetensors
# Blocks that stay whole, all or some of them, over either way to gather.
for whole in -1 1 2; do
    train "whole$whole" --ranks 2 --unsharded_blocks $whole || fail "$whole blocks whole"
    FAKE_PEER=1 train "pulled$whole" --ranks 2 --unsharded_blocks $whole || fail "$whole blocks whole, others pulled"
    same cpu2/adapter_model.safetensors "whole$whole/adapter_model.safetensors"
    same cpu2/adapter_model.safetensors "pulled$whole/adapter_model.safetensors"
done
train all || fail "as many ranks as there are GPUs"
grep -q "on 4 ranks" said || fail "four GPUs are four ranks"
train full4 --use_peft false --sharding_strategy SHARD_GRAD_OP || fail "full fine-tuning on four"
train cpu4 --device cpu --ranks 4 --use_peft false --sharding_strategy SHARD_GRAD_OP || fail "the same on the CPU"
same full4/model.safetensors cpu4/model.safetensors
# NCCL adds in whatever order; with `deterministic` the ranks do, and so do those that read each other's memory.
train cpu4_lora --device cpu --ranks 4 || fail "four ranks on the CPU"
FAKE_DISORDER=1 train disorder4 --ranks 4 || fail "four ranks whose sums come in another order"
cmp -s cpu4_lora/adapter_model.safetensors disorder4/adapter_model.safetensors && fail "another order does not show"
FAKE_PEER=1 train links4 --ranks 4 || fail "four ranks that read each other's memory"
cmp -s cpu4_lora/adapter_model.safetensors links4/adapter_model.safetensors && fail "the order of links does not show"
FAKE_DISORDER=1 TRIMTAB_DETERMINISTIC=1 train ordered4 --ranks 4 || fail "four ranks, deterministic"
same cpu4_lora/adapter_model.safetensors ordered4/adapter_model.safetensors
FAKE_PEER=1 TRIMTAB_DETERMINISTIC=1 train links4_ordered --ranks 4 || fail "four ranks over links, deterministic"
same cpu4_lora/adapter_model.safetensors links4_ordered/adapter_model.safetensors
FAKE_DISORDER=1 TRIMTAB_DETERMINISTIC=1 train copies4 --ranks 4 --sharding_strategy NO_SHARD --reduce_dtype bfloat16 ||
    fail "four replicas, deterministic"
train cpu4_copies --device cpu --ranks 4 --sharding_strategy NO_SHARD --reduce_dtype bfloat16 || fail "four replicas"
same cpu4_copies/adapter_model.safetensors copies4/adapter_model.safetensors

# FP8, which GPUs make of the weights while they load: the codes of processors, on any number of ranks.
coded() {
    train "$@" --model_name_or_path "$root/tests/golden/mistral/model" --base_dtype fp8 --fp8_products all \
        --dataset_name "$root/tests/golden/mistral/train.jsonl" --max_steps 3
}
for ranks in 1 2 3; do
    coded "coded_cpu$ranks" --device cpu --ranks $ranks || fail "FP8 on $ranks ranks on the CPU"
    coded "coded_gpu$ranks" --ranks $ranks || fail "FP8 on $ranks GPUs"
    same "coded_cpu$ranks/adapter_model.safetensors" "coded_gpu$ranks/adapter_model.safetensors"
done
coded coded_host --ranks 2 --offload_params true || fail "FP8 in host memory"
same coded_cpu2/adapter_model.safetensors coded_host/adapter_model.safetensors
FAKE_NO_COLUMNS=1 coded uncoded --ranks 2 && fail "FP8 is not made by the GPU"
grep -q "^error: the fake device quantizes no columns" said || fail "a failing op of loading: the message"

train one --device cuda --ranks 1 || fail "one GPU"

train asked --ranks 5 --use_cpu true || fail "use_cpu: five ranks on the CPU"
grep -q "planned for cpu" said || fail "use_cpu: on GPUs"

train five --ranks 5 && fail "five ranks on four GPUs"
grep -q "5 ranks, but this process sees 4 GPUs" said || fail "five ranks on four GPUs: the message"
FAKE_FAIL=1 train failing --ranks 3 && fail "a communicator that cannot be made"
[ "$(grep -c "^error: the fake communicator cannot be made" said)" -eq 1 ] || fail "a communicator: the message"
grep -q "on rank 1 of 3" said || fail "a communicator: whose"
train stopped --ranks 2 --device_memory 1KiB && fail "too little memory"
# A rank that never comes to a collective: the others wait, as for a rank that saves, until the second signal.
FAKE_HANG=40 "$build/trimtab" train --model_name_or_path "$root/tests/golden/llama2/model" --threads 1 --ranks 2 \
    --dataset_name "$root/tests/golden/llama2/train.jsonl" --max_steps 6 --unsharded_blocks 0 --output_dir hanging >said 2>&1 &
waiting=$!
sleep 2
kill -INT $waiting
sleep 1
kill -0 $waiting 2>/dev/null || fail "a rank that hangs is not waited for"
kill -INT $waiting
wait $waiting
code=$?
[ $code -eq 11 ] || fail "a second signal to a run that hangs ends it with $code"
# Prompts at a time on a GPU: all, half as often as its memory wants it, or as many as asked for; the answers are the CPU's.
cp -r "$root/tests/golden/llama3/model" model && cp "$root"/tests/support/tiny_tokenizer/* model/ && chmod -R u+w model
seq -f '%g + 1 =' 40 >prompts.txt
complete() {
    "$build/trimtab" generate --model_name_or_path model --prompt_file prompts.txt --max_new_tokens 8 --ignore_eos --bf16 false \
        --threads 1 --stats "${@:2}" >"$1" 2>said || fail "generate ${*:2}"
}
complete wanted --device cpu
for case in "40 --ranks 1" "20 --ranks 2" "3 --ranks 1 --batch_size 3" "40 --ranks 1 --device_memory 900MiB" \
    "8 --ranks 1 --device_memory 780MiB"; do
    read -r slots words <<<"$case"
    read -ra words <<<"$words"
    complete answers "${words[@]}"
    same answers wanted
    grep -q "^at most $slots prompts at a time on a rank" said || fail "not $slots prompts at a time: $case"
done
# LongRoPE, whose border at 20 tokens every answer passes or its prompt does: passes of single tokens give the CPU's
# answers. A prompt alone, with an answer that ends before the border, has the beginning of its long answer.
cp -r "$root/tests/golden/phi3/model" longrope && cp "$root"/tests/support/tiny_tokenizer/* longrope/ && chmod -R u+w longrope
cp "$root/tests/golden/variants/phi3_longrope.json" longrope/config.json
{ seq -f '%g + 1 =' 95 12 160 && echo 'a prompt beyond the border: 1 + 1 ='; } >crossing.txt
cross() {
    "$build/trimtab" generate --model_name_or_path longrope --prompt_file crossing.txt --ignore_eos --bf16 false --threads 1 \
        "${@:2}" >"$1" 2>said || fail "LongRoPE: generate ${*:2}"
}
cross wanted --device cpu --max_new_tokens 24
cross answers --ranks 1 --max_new_tokens 24
same answers wanted
cross answers --ranks 1 --max_new_tokens 24 --batch_size 2
same answers wanted
head -n 1 crossing.txt >one.txt
"$build/trimtab" generate --model_name_or_path longrope --prompt_file one.txt --ignore_eos --bf16 false --threads 1 --json \
    --device cpu --max_new_tokens 6 >alone 2>said || fail "LongRoPE: generate one"
line=$(<alone)
[[ $(head -n 1 wanted) == "${line%\"\}}"* ]] || fail "LongRoPE: the answer depends on the longest one" alone
while read -r number; do echo "{\"prompt\": \"$number + 1 =\", \"completion\": \" 1\"}"; done < <(seq 40) >rows.jsonl
for words in "--device cpu" "--ranks 1" "--ranks 2" "--ranks 2 --sharding_strategy FULL_SHARD"; do
    read -ra words <<<"$words"
    "$build/trimtab" eval --model_name_or_path model --eval_dataset rows.jsonl --exact_match --max_new_tokens 2 --bf16 false \
        --threads 1 "${words[@]}" --json >counted 2>said || fail "eval ${words[*]}"
    grep -o '"exact_matches": [0-9]*' counted >>matches || fail "eval ${words[*]}: no matches" counted
done
[ "$(sort -u matches | wc -l)" -eq 1 ] || fail "other matches on GPUs" matches
TRIMTAB_CUDA_PLUGIN=$PWD/nothing.so train missing --device cuda && fail "a plugin that is missing"
grep -q "no GPU can be used: " said || fail "a plugin that is missing: the message"
[ $failures -eq 0 ] && echo "all as expected"
exit $((failures > 0))
