#!/usr/bin/env bash
# Experts in codes on the command line: folders that quantize writes train, answer and merge as a model that is quantized
# while loading; an interrupted run goes on; plans and refusals.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
mkdir model && cp "$root"/tests/support/tiny_tokenizer/* model/ && chmod -R u+w model
cat >model/config.json <<'END'
{"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "vocab_size": 263, "hidden_size": 64, "head_dim": 16,
 "intermediate_size": 40, "moe_intermediate_size": 32, "num_experts": 5, "num_experts_per_tok": 2, "num_hidden_layers": 2,
 "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 128, "norm_topk_prob": true,
 "tie_word_embeddings": false, "initializer_range": 0.2}
END
for i in $(seq 24); do echo "{\"prompt\": \"$i + 1 =\", \"completion\": \" $((i + 1))\"}"; done >train.jsonl
expect 0 "" train --model_name_or_path model --init random --use_peft false --dataset_name train.jsonl --max_steps 1 \
    --learning_rate 1e-9 --output_dir base --report_to none --bf16 true
adapter() { # NAME MODEL flags...
    expect 0 "" train --output_dir "$1" --model_name_or_path "$2" --dataset_name train.jsonl --max_steps 4 --learning_rate 0.01 \
        --report_to none --threads 1 --bf16 true --lora_target_modules q_proj --lora_dropout 0 --save_strategy no \
        --target_parameters mlp.experts.gate_up_proj mlp.experts.down_proj "${@:3}"
}
printf '%s\n' '12 + 1 =' 'a b c' >prompts.txt
answer() { "$trimtab" generate "$@" --max_new_tokens 8 --prompt_file prompts.txt 2>err || fail "$*: $(cat err)"; }

# The folder has the codes that loading makes: the same adapters, the same answers.
while read -r to settings; do
    read -ra settings <<<"$settings"
    expect 0 "" quantize --model_name_or_path base --output_dir "in-$to" --to "$to" --quantize_moe_experts true --json
    grep -q '"gate_proj"' printed || fail "$to: no experts are quantized:" "$(cat printed)"
    adapter "of-$to" "in-$to" "${settings[@]:2}" --ranks 2
    grep -q 'experts: .* as the folder has them' err || fail "$to: experts are not kept:" "$(cat err)"
    adapter "over-$to" base "${settings[@]}" --quantize_moe_experts true --ranks 2
    grep -q 'experts too' err || fail "$to: experts are not quantized:" "$(cat err)"
    cmp "of-$to/adapter_model.safetensors" "over-$to/adapter_model.safetensors" || fail "$to: other adapters"
    answer --model_name_or_path "in-$to" --adapter_name_or_path "of-$to" "${settings[@]:2}" >a
    answer --model_name_or_path base --adapter_name_or_path "over-$to" "${settings[@]}" --quantize_moe_experts true >b
    [ -s a ] && cmp a b || fail "$to: other answers"
done <<'END'
nf4 --load_in_4bit true
fp4 --load_in_4bit true --bnb_4bit_quant_type fp4
int8 --load_in_8bit true
fp8 --base_dtype fp8 --fp8_products none
END

for to in nf4 fp8; do
    expect 0 "" plan --model_name_or_path in-$to --sequence_length 64 --units true --lora_target_modules q_proj
    grep -q "experts.gate_up_proj  *$to " printed || fail "the plan holds experts otherwise:" "$(grep gate_up printed)"
done

# A folder that has convolutions of three dimensions, too, and a family without a loss that balances experts.
family() { # NAME, config.json as input: a base, and its folder in codes.
    mkdir "$1" && cp "$root"/tests/support/tiny_tokenizer/* "$1/" && chmod -R u+w "$1"
    cat >"$1/config.json"
    expect 0 "" train --model_name_or_path "$1" --init random --use_peft false --dataset_name train.jsonl --max_steps 1 \
        --learning_rate 1e-9 --output_dir "base-$1" --report_to none --bf16 true
    expect 0 "" quantize --model_name_or_path "base-$1" --output_dir "in-$1" --to nf4 --quantize_moe_experts true
    expect 0 "" plan --model_name_or_path "in-$1" --sequence_length 64 --units true --lora_target_modules q_proj
    grep -q "experts.gate_up_proj  *nf4 " printed || fail "the plan of $1 holds experts otherwise:" "$(grep gate_up printed)"
    adapter "of-$1" "in-$1"
    grep -q 'experts: nf4 as the folder has them' err || fail "$1: experts are not kept:" "$(cat err)"
    adapter "over-$1" "base-$1" --load_in_4bit true --quantize_moe_experts true
    cmp "of-$1/adapter_model.safetensors" "over-$1/adapter_model.safetensors" || fail "$1: other adapters"
}
family hybrid <<'END'
{"model_type": "qwen3_next", "architectures": ["Qwen3NextForCausalLM"], "vocab_size": 263, "hidden_size": 64, "head_dim": 16,
 "intermediate_size": 64, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32, "num_experts": 4,
 "num_experts_per_tok": 2, "num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"],
 "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
 "linear_conv_kernel_dim": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
 "norm_topk_prob": true, "tie_word_embeddings": false, "initializer_range": 0.2}
END
family glm <<'END'
{"model_type": "glm4_moe", "architectures": ["Glm4MoeForCausalLM"], "vocab_size": 263, "hidden_size": 64, "head_dim": 16,
 "intermediate_size": 64, "moe_intermediate_size": 32, "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2,
 "num_hidden_layers": 2, "first_k_dense_replace": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
 "max_position_embeddings": 128, "norm_topk_prob": true, "tie_word_embeddings": false, "initializer_range": 0.2}
END

# Double quantization, which has an offset for each matrix there, is kept with plain scales.
expect 0 "" quantize --model_name_or_path base --output_dir nested --to nf4 --bnb_4bit_use_double_quant true \
    --quantize_moe_experts true
adapter of-nested nested
grep -q 'experts: nf4 as the folder has them, decoded to bfloat16: 4.5. bits a weight' err || fail "nested:" "$(cat err)"
expect 0 "tensors" merge --model_name_or_path nested --adapter_name_or_path of-nested --output_dir merged
answer --model_name_or_path merged >a

# A run goes on with the setting that it began with, and not with another.
steps=(--save_strategy steps --save_steps 2)
adapter whole base --load_in_4bit true --quantize_moe_experts true "${steps[@]}"
mkdir again && cp -r whole/checkpoint-2 again/
adapter again base --load_in_4bit true --quantize_moe_experts true "${steps[@]}" --resume_from_checkpoint true
cmp whole/adapter_model.safetensors again/adapter_model.safetensors || fail "the resumed adapter differs"
rm -r again && mkdir again && cp -r whole/checkpoint-2 again/
expect 2 'quantize_moe_experts' train --output_dir again --model_name_or_path base --dataset_name train.jsonl --max_steps 4 \
    --learning_rate 0.01 --report_to none --bf16 true --lora_target_modules q_proj --lora_dropout 0 --load_in_4bit true \
    --target_parameters mlp.experts.gate_up_proj mlp.experts.down_proj "${steps[@]}" --resume_from_checkpoint true

# Names that stay, models without experts, and what no folder has.
expect 0 "experts too" train --output_dir some --model_name_or_path base --dataset_name train.jsonl --max_steps 1 --report_to none \
    --load_in_4bit true --quantize_moe_experts true --llm_int8_skip_modules '["mlp.experts.down_proj"]' --lora_target_modules q_proj
sed 's/qwen3_moe/qwen3/; s/Qwen3Moe/Qwen3/' model/config.json >dense.json
expect 2 "quantize_moe_experts is set, and this model has no experts" plan --config_json dense.json --sequence_length 64 \
    --load_in_4bit true --quantize_moe_experts true
expect 2 "has all experts in one tensor, for which folders have no form in codes" quantize --output_dir unmade \
    --model_name_or_path "$root/tests/golden/vision/mistral4/model" --quantize_moe_experts true
expect 2 "is a part of 'model.layers.0.mlp.experts.gate_up_proj' in the files, of several matrices" quantize --output_dir unmade \
    --model_name_or_path "$root/tests/golden/dense/gpt_oss/model" --quantize_moe_experts true

# A folder in MXFP4 is kept, and quantized anew where that is asked for; one that has numbers too is refused.
mxfp4=$root/tests/golden/dense/gpt_oss/mxfp4/model
over_mxfp4() { # CODE TEXT MODEL flags...
    expect "$1" "$2" train --output_dir mx --model_name_or_path "$3" --dataset_name "$root/tests/golden/dense/train.jsonl" \
        --max_steps 1 --report_to none --lora_target_modules q_proj --overwrite_output_dir true "${@:4}"
}
over_mxfp4 0 "experts: mxfp4 as the folder has them, decoded to bfloat16: " "$mxfp4"
over_mxfp4 0 "4-bit base: nf4 in blocks of 64, scales in float32, experts too" "$mxfp4" --load_in_4bit true --quantize_moe_experts true
if command -v python3 >/dev/null; then
    mkdir mixed && cp "$mxfp4"/* mixed/ && chmod -R u+w mixed
    python3 - "$root/tests/golden/dense/gpt_oss/model/model.safetensors" mixed/model.safetensors <<'END' || fail "no mixed folder"
import json, struct, sys
def read(path):
    data = open(path, "rb").read()
    size, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {k: (v, data[8 + size + v["data_offsets"][0]:8 + size + v["data_offsets"][1]]) for k, v in header.items()}
plain, mixed = (read(path) for path in sys.argv[1:])
name = "model.layers.1.mlp.experts.down_proj"
del mixed[name + "_blocks"], mixed[name + "_scales"]
mixed[name] = plain[name]
header, data = {}, b""
for key, (entry, values) in sorted(mixed.items(), key=lambda item: (item[1][0]["dtype"] == "U8", item[0])):
    header[key] = {"dtype": entry["dtype"], "shape": entry["shape"], "data_offsets": [len(data), len(data) + len(values)]}
    data += values
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
open(sys.argv[2], "wb").write(struct.pack("<Q", len(text)) + text + data)
END
    over_mxfp4 3 "'model.layers.1.mlp.experts.down_proj' is not in MXFP4, and others of the folder are" mixed
fi

plan() { expect 0 "$1" plan --config_json "$root/bench/shapes/qwen3_30b_a3b.json" --device h200 --device_memory 24GiB --sequence_length 2048 \
    --per_device_train_batch_size 1 --lora_r 16 --lora_target_modules q_proj,k_proj,v_proj,o_proj --load_in_4bit true \
    --bnb_4bit_use_double_quant true "${@:2}"; }
plan "of 24.0 GiB" --quantize_moe_experts true
grep -q 'does not fit' printed && fail "30B does not fit:" "$(cat printed)"
grep -q 'weights shard  *15.5 GiB' printed || fail "another shard:" "$(cat printed)"
finish
