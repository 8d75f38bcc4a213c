#!/usr/bin/env bash
# Kinds of adapters from training to a merged model: what is generated with the adapter, on one rank and on two, over
# weights as they are and in four and eight bits, is what the merged model generates; a resumed run ends with the same
# bytes.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
golden=$root/tests/golden
cp -r "$golden/qwen2/model" model && cp "$root"/tests/support/tiny_tokenizer/* model/ && chmod -R u+w model
run=(--model_name_or_path model --dataset_name "$golden/qwen2/train.jsonl" --bf16 false --use_dora --lora_target_modules all-linear
    --lora_r 4 --max_steps 6 --learning_rate 0.02 --save_steps 3 --save_strategy steps)
expect 0 '' train "${run[@]}" --output_dir tuned
expect 0 '' train "${run[@]}" --output_dir again --resume_from_checkpoint tuned/checkpoint-3
cmp -s tuned/adapter_model.safetensors again/adapter_model.safetensors || fail "a resumed run ends with another adapter"
grep -q '"use_dora": true' tuned/adapter_config.json || fail "adapter_config.json:" "$(cat tuned/adapter_config.json)"
expect 0 'lora_magnitude_vector' inspect tuned --tensors
expect 0 '' merge --model model --adapter tuned --output_dir merged
ask=(generate --prompt 'the rain' --max_new_tokens 12 --temperature 0 --bf16 false --repetition_penalty 1.3)
# answer FILE flags...: the words that follow.
answer() {
    "$trimtab" "${ask[@]}" "${@:2}" >"$1" 2>err || fail "generate ${*:2}:" "$(cat err)"
}
same() {
    cmp -s "$1" "$2" || fail "$3: '$(cat "$1")', and not '$(cat "$2")'"
}
answer of_merged --model_name_or_path merged
answer of_base --model_name_or_path model
! cmp -s of_merged of_base || fail "the adapter changes no word of '$(cat of_base)'"
for how in "" "--ranks 2 --threads 1" "--ranks 2 --threads 1 --offload_params true"; do
    # shellcheck disable=SC2086
    answer of_tuned --model_name_or_path model --adapter_name_or_path tuned $how
    same of_tuned of_merged "generate $how"
done
# Norms are those of the decoded weights: a folder in few bits, and the same numbers in a plain one.
expect 0 '' train "${run[@]}" --use_dora false --max_steps 1 --learning_rate 1e-30 --output_dir nothing
for bits in nf4 int8 fp8; do
    decoded=()
    [ $bits != fp8 ] || decoded=(--fp8_products none)
    rm -rf coded plain both on_coded on_plain
    expect 0 '' quantize --model model --output_dir coded --to $bits
    expect 0 '' merge --model coded --adapter tuned --output_dir both
    answer of_tuned --model_name_or_path coded --adapter_name_or_path tuned
    answer of_merged --model_name_or_path both
    same of_tuned of_merged "$bits"
    expect 0 '' merge --model coded --adapter nothing --output_dir plain
    expect 0 '' train "${run[@]}" --model_name_or_path coded "${decoded[@]}" --output_dir on_coded
    expect 0 '' train "${run[@]}" --model_name_or_path plain --output_dir on_plain
    cmp -s on_coded/adapter_model.safetensors on_plain/adapter_model.safetensors ||
        fail "a training over $bits is another than over its numbers"
done
expect 2 "the magnitudes of DoRA in an adapter: 'model.layers.0.self_attn.q_proj.weight'" \
    export gguf --model model --adapter tuned --adapter_only --output_file lora.gguf
cp -r "$golden/qwen2/adapter_random" other
expect 2 "several adapters at a time, and one of them has use_dora" generate --model_name_or_path model --prompt a \
    --adapter_name_or_path tuned,other
# Biases of the base that train beside an adapter.
bias=("${run[@]}" --use_dora false --bias all --lora_target_modules q_proj)
expect 0 '' train "${bias[@]}" --output_dir biased
expect 0 '' train "${bias[@]}" --output_dir biased_again --resume_from_checkpoint biased/checkpoint-3 --ranks 2 --threads 1 \
    --per_device_train_batch_size 4
cmp -s biased/adapter_config.json biased_again/adapter_config.json || fail "a resumed run writes another adapter_config.json"
grep -q '"bias": "all"' biased/adapter_config.json || fail "adapter_config.json:" "$(cat biased/adapter_config.json)"
"$trimtab" inspect biased --tensors >printed 2>err || fail "inspect: $(cat err)"
for name in q_proj.base_layer.bias k_proj.bias v_proj.bias; do
    grep -q "layers.1.self_attn.$name" printed || fail "no tensor $name in:" "$(cat printed)"
done
expect 0 '' merge --model model --adapter biased --output_dir biased_merged
answer of_merged --model_name_or_path biased_merged
answer of_tuned --model_name_or_path model --adapter_name_or_path biased
same of_tuned of_merged "biases"
expect 2 "one of them trains 'model.layers.0.self_attn.q_proj.bias'" generate --model_name_or_path model --prompt a \
    --adapter_name_or_path biased,other
expect 2 "vectors in an adapter: 'model.layers.0.self_attn.q_proj.bias'" \
    export gguf --model model --adapter biased --adapter_only --output_file lora.gguf
printf '{"prompt": "a", "chosen": "b", "rejected": "c"}\n%.0s' {1..8} >pairs.jsonl
expect 0 "" train "${bias[@]}" --objective dpo --dataset_name pairs.jsonl --output_dir dpo
expect 2 "objective 'dpo' needs a reference, and 'model.layers.0.self_attn.q_proj.bias' trained without LoRA" \
    eval --model_name_or_path model --adapter_name_or_path dpo --objective dpo --eval_dataset pairs.jsonl
expect 0 '' train "${run[@]}" --objective dpo --dataset_name pairs.jsonl --output_dir dpo_magnitudes
finish
