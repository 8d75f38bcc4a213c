#!/usr/bin/env bash
# Adapters of experts on the command line: a run that is interrupted and resumed on other ranks, merging, answers of one and
# of several adapters, and what has no place for them.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
mkdir model && cp "$root"/tests/support/tiny_tokenizer/* model/ && chmod -R u+w model
cat >model/config.json <<'END'
{"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "vocab_size": 263, "hidden_size": 32, "head_dim": 16,
 "intermediate_size": 40, "moe_intermediate_size": 24, "num_experts": 5, "num_experts_per_tok": 2, "num_hidden_layers": 2,
 "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 128, "norm_topk_prob": true,
 "tie_word_embeddings": false, "initializer_range": 0.2}
END
for i in $(seq 24); do echo "{\"prompt\": \"$i + 1 =\", \"completion\": \" $((i + 1))\"}"; done >train.jsonl
expect 0 "" train --model_name_or_path model --init random --use_peft false --dataset_name train.jsonl --max_steps 1 \
    --learning_rate 1e-9 --output_dir base --report_to none --bf16 false
both=(--target_parameters mlp.experts.gate_up_proj mlp.experts.down_proj --lora_dropout 0)
# make NAME flags...: an adapter.
make() {
    expect 0 "" train --model_name_or_path base --dataset_name train.jsonl --max_steps 6 --learning_rate 0.03 --report_to none \
        --bf16 false --threads 1 --output_dir "$@"
}
make whole "${both[@]}" --lora_target_modules q_proj --save_strategy steps --save_steps 3 --ranks 2
grep -q 'adapted: q_proj 2,048, experts 21,760$' err || fail "what is adapted:" "$(grep adapted err)"
expect 0 'target_parameters       ["mlp.experts.down_proj", "mlp.experts.gate_up_proj"]' inspect whole

# Resumed on other ranks it is the same adapter, to the rounding of other sums.
mkdir again && cp -r whole/checkpoint-3 again/
make again "${both[@]}" --lora_target_modules q_proj --save_strategy no --ranks 4 --resume_from_checkpoint true \
    --per_device_train_batch_size 2 --gradient_accumulation_steps 2
grep -q 'resum' err || fail "it was not resumed:" "$(cat err)"
if command -v python3 >/dev/null; then
    python3 - whole again <<'END' || fail "the resumed adapter differs"
import json, struct, sys
def read(folder):
    data = open(f"{folder}/adapter_model.safetensors", "rb").read()
    size, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {k: struct.unpack(f"<{(v['data_offsets'][1] - v['data_offsets'][0]) // 4}f",
                             data[8 + size + v["data_offsets"][0]:8 + size + v["data_offsets"][1]]) for k, v in header.items()}
a, b = (read(folder) for folder in sys.argv[1:])
assert a.keys() == b.keys() and any(".experts.base_layer.lora_B" in key for key in a), a.keys()
for key, x in a.items():
    off, size = sum((p - q) ** 2 for p, q in zip(x, b[key])), sum(p * p for p in x)
    assert size > 0 and off <= 1e-8 * size, (key, off, size)
END
fi

# answer flags...: what the model says to each prompt.
printf '%s\n' '12 + 1 =' 'a b c' >prompts.txt
answer() { "$trimtab" generate "$@" --bf16 false --max_new_tokens 10 --prompt_file prompts.txt 2>err | sed 's/, "adapter": "[a-z]*"//' || fail "$*: $(cat err)"; }
expect 0 "tensors changed" merge --model_name_or_path base --adapter_name_or_path whole --output_dir merged
answer --model_name_or_path merged >of-merged
answer --model_name_or_path base --adapter_name_or_path whole >of-both
answer --model_name_or_path base >of-base
[ -s of-both ] && cmp of-merged of-both || fail "the merged model answers otherwise"
cmp -s of-base of-both && fail "the adapter changes no answer, which proves nothing"
answer --model_name_or_path base --adapter_name_or_path whole --ranks 2 >of-ranks
cmp of-ranks of-both || fail "two ranks answer otherwise"

# Several of other ranks and scales answer as each alone.
make wide "${both[@]}" --lora_r 5 --lora_alpha 7 --use_rslora true --lora_target_modules v_proj --save_strategy no --seed 3
answer --model_name_or_path base --adapter_name_or_path wide >of-wide
cmp -s of-wide of-both && fail "both adapters say the same, which proves nothing"
for name in whole wide; do
    while read -r prompt; do printf '{"prompt": "%s", "adapter": "%s"}\n' "$prompt" "$name"; done <prompts.txt
done >mixed.jsonl
"$trimtab" generate --model_name_or_path base --adapter_name_or_path whole,wide --bf16 false --max_new_tokens 10 \
    --prompt_file mixed.jsonl 2>err | sed 's/, "adapter": "[a-z]*"//; s/"adapter": "[a-z]*", //' >of-several
sed 's/"adapter": "[a-z]*", //' of-both of-wide | cmp - of-several || fail "together they answer otherwise:" "$(cat err of-several)"
make down --target_parameters experts.down_proj --lora_dropout 0 --lora_target_modules q_proj --save_strategy no
expect 2 "'model.layers.0.mlp.experts.gate_up_proj' is adapted by some of them only" generate --model_name_or_path base \
    --adapter_name_or_path whole,down --prompt x --max_new_tokens 4

expect 2 "GGUF cannot express" export gguf --model_name_or_path base \
    --adapter_name_or_path whole --adapter_only --output_file adapter.gguf
expect 2 "lora_dropout is 0.05, and adapters of parameters" plan --model_name_or_path base \
    --target_parameters experts.down_proj
expect 0 "" train --model_name_or_path base --dataset_name train.jsonl --max_steps 2 --report_to none --load_in_4bit true \
    --adapter_name_or_path whole --output_dir further --save_strategy no --bf16 false
finish
