#!/bin/bash
# What is skipped because it repeats something else is compared with it: heads of tied embeddings, saved frequencies,
# copies of the base in adapters. What differs is used or refused by name, alike in every command.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
demo=$root/examples/demo
head -24 "$demo/data/train.jsonl" >rows.jsonl
export PYTHONPATH=$root/tests/tools

# made NAME STATEMENTS [BASE]: a copy of a folder whose tensors Python has changed: t is the dictionary, c config.json.
made() {
    rm -rf "$1"
    cp -r "${3:-$demo/model}" "$1" && chmod -R u+w "$1"
    python3 - "$1" "$2" <<'END' || fail "python3: $2"
import sys, json, os, struct, tensors
folder, statements = sys.argv[1:]
name = "/adapter_model.safetensors" if os.path.exists(folder + "/adapter_config.json") else "/model.safetensors"
config = folder + ("/adapter_config.json" if "adapter" in name else "/config.json")
t, c = tensors.read(folder + name), json.load(open(config))
def rows(tensor, order):
    dtype, shape, data = tensor
    n = len(data) // shape[0]
    return dtype, shape, b"".join(data[i * n:(i + 1) * n] for i in order(shape[0]))
exec(statements)
tensors.write(folder + name, t)
json.dump(c, open(config, "w"))
END
}
# loss MODEL FLAGS: prints the evaluation's loss; what it said is in said.
loss() {
    "$trimtab" eval --model_name_or_path "$@" --eval_dataset rows.jsonl --max_length 96 --threads 1 --device cpu 2>said |
        sed -n 's/^loss  *//p'
}
same() { [ -n "$1" ] && [ "$1" = "$2" ] || fail "$3: '$1', '$2'" "$(tail -n 3 said)"; }
differ() { [ -n "$1" ] && [ -n "$2" ] && [ "$1" != "$2" ] || fail "$3: '$1', '$2'" "$(tail -n 3 said)"; }

own='e = t["model.embed_tokens.weight"]; t["lm_head.weight"] = rows(e, lambda n: reversed(range(n)))'
made equal 't["lm_head.weight"] = t["model.embed_tokens.weight"]'
made under_head 't["lm_head.weight"] = t.pop("model.embed_tokens.weight")'
made own "$own"
made untied "$own; c['tie_word_embeddings'] = False"
made half 'd, s, b = t["model.embed_tokens.weight"]; n = len(b) // s[0] * (s[0] - 300)
t["lm_head.weight"] = (d, s, b[:n] + bytes(len(b) - n))'
tied=$(loss "$demo/model")
same "$tied" "$(loss equal)" "an equal head beside the table"
same "$tied" "$(loss under_head)" "the table under the name of the head"
two=$(loss untied)
differ "$tied" "$two" "another head"
same "$two" "$(loss own)" "a head of its own, with and without the flag"
grep -q "'lm_head.weight' differs from 'model.embed_tokens.weight'" said || fail "a head of its own without a word:" "$(cat said)"

# Plan, generation, merging, quantizing and GGUF have the same two tables.
planned() { "$trimtab" plan --model_name_or_path "$1" --device cpu --sequence_length 64 2>said | grep 'weights shard'; }
same "$(planned untied)" "$(planned own)" "the plan"
differ "$(planned untied)" "$(planned equal)" "the plan of one table"
answer() { "$trimtab" generate --model_name_or_path "$1" --prompt "The" --max_new_tokens 12 --do_sample false --device cpu 2>said; }
same "$(answer untied)" "$(answer own)" "generation"
differ "$(answer "$demo/model")" "$(answer own)" "generation with another head"
"$trimtab" train --model_name_or_path own --dataset_name rows.jsonl --output_dir lora --max_steps 2 --learning_rate 1e-3 --device cpu \
    --threads 1 --seed 3 --report_to none >said 2>&1 || fail "train:" "$(tail -n 3 said)"
"$trimtab" train --model_name_or_path untied --dataset_name rows.jsonl --output_dir lora2 --max_steps 2 --learning_rate 1e-3 --device cpu \
    --threads 1 --seed 3 --report_to none >said 2>&1 || fail "train:" "$(tail -n 3 said)"
expect 0 "embeddings and head of this model are two tables, and stay two" train --model_name_or_path untied --dataset_name rows.jsonl \
    --output_dir two_tables --max_steps 1 --device cpu --lora_modules_to_save embed_tokens --ensure_weight_tying true --report_to none
cmp lora/adapter_model.safetensors lora2/adapter_model.safetensors || fail "training over a head of its own"
# Rows of new tokens are drawn for each table, and do not make two of one.
expect 0 "" train --model_name_or_path equal --dataset_name rows.jsonl --output_dir grown --max_steps 1 --device cpu --report_to none \
    --add_tokens '<added>'
! grep -q "differs from\|two tables" err || fail "a new token unties the tables:" "$(cat err)"
grep -q '"trainable_token_indices": \[' grown/adapter_config.json || fail "two tables train:" "$(grep trainable_token grown/adapter_config.json)"
expect 0 "tensors changed" merge --model own --adapter lora --output_dir merged
grep -q '"tie_word_embeddings": false' merged/config.json || fail "the merged config.json still ties"
expect 0 "tensors changed" merge --model untied --adapter lora2 --output_dir merged2
cmp merged/model.safetensors merged2/model.safetensors || fail "merging over a head of its own"
expect 0 "" quantize --model own --output_dir fp8 --to fp8
grep -q '"tie_word_embeddings": false' fp8/config.json || fail "the quantized config.json still ties"
cp -r "$root/tests/golden/qwen2/model" qwen2 && chmod -R u+w qwen2 && cp "$root"/tests/support/tiny_tokenizer/* qwen2/
made qwen2_own "$own" qwen2
expect 0 "" export gguf --model qwen2_own --output_file own.gguf
grep -qaP '(?<!attn_)output\.weight' own.gguf || fail "the GGUF file has no head"
made qwen2_head 't["lm_head.weight"] = t.pop("model.embed_tokens.weight")' qwen2
expect 0 "" export gguf --model qwen2_head --output_file one.gguf
grep -qaP '(?<!attn_)output\.weight' one.gguf && fail "the GGUF file of one table has a head"
grep -qaF token_embd.weight one.gguf || fail "the GGUF file has no embeddings"
"$trimtab" train --model_name_or_path own --dataset_name rows.jsonl --output_dir full --max_steps 1 --use_peft false --device cpu \
    --threads 1 --report_to none >said 2>&1 || fail "full training:" "$(tail -n 3 said)"
grep -q '"tie_word_embeddings": false' full/config.json || fail "the trained config.json still ties"

# Two processes compare a half each; only the second one's differs.
one=$(loss half)
differ "$tied" "$one" "a head that differs in its last rows"
port=$((20000 + RANDOM % 20000))
for rank in 0 1; do
    RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$trimtab" eval \
        --model_name_or_path half --eval_dataset rows.jsonl --max_length 96 --threads 1 --device cpu >rank$rank 2>rank$rank.err &
    pids[rank]=$!
done
wait "${pids[0]}" || fail "rank 0:" "$(cat rank0.err)"
wait "${pids[1]}" || fail "rank 1:" "$(cat rank1.err)"
same "$one" "$(sed -n 's/^loss  *//p' rank0)" "two processes"

# Frequencies of rotations: those of config.json count.
freq='f = [10000.0 ** (-2 * i / 32) * FACTOR for i in range(16)]
t["model.layers.0.self_attn.rotary_emb.inv_freq"] = ("F32", [16], struct.pack("<16f", *f))'
made rotated "${freq/FACTOR/1}"
same "$tied" "$(loss rotated)" "saved frequencies"
grep -q "frequencies" said && fail "a warning of equal frequencies"
made turned "${freq/FACTOR/2}"
same "$tied" "$(loss turned)" "other saved frequencies"
grep -q "rotary_emb.inv_freq' holds other frequencies" said || fail "other frequencies without a word:" "$(cat said)"
made long 't["model.layers.0.self_attn.rotary_emb.inv_freq"] = ("F32", [5000], bytes(20000))'
loss long >/dev/null
grep -q "rotary_emb.inv_freq' has 5000 numbers" said || fail "more frequencies than a model has:" "$(cat said)"

# Adapters: PEFT saves the layer under an adapter of the head, and embeddings with save_embedding_layers.
base=$demo/model
"$trimtab" train --model_name_or_path "$base" --dataset_name rows.jsonl --output_dir head --max_steps 2 --learning_rate 1e-3 --device cpu \
    --lora_target_modules '["q_proj","lm_head"]' --threads 1 --report_to none >said 2>&1 || fail "LoRA on the head:" "$(tail -n 3 said)"
plain=$(loss "$base" --adapter_name_or_path head)
table="e = tensors.read('$base/model.safetensors')['model.embed_tokens.weight']"
made copy "$table; t['base_model.model.lm_head.base_layer.weight'] = t['base_model.model.model.embed_tokens.weight'] = e" head
same "$plain" "$(loss "$base" --adapter_name_or_path copy)" "copies of the base in an adapter"
made alien "$table; t['base_model.model.lm_head.base_layer.weight'] = rows(e, lambda n: reversed(range(n)))" head
for command in "eval --eval_dataset rows.jsonl" "generate --prompt x" "merge --output_dir never" "train --dataset_name rows.jsonl --output_dir never"; do
    # shellcheck disable=SC2086
    expect 3 "'base_model.model.lm_head.base_layer.weight' of the adapter differs from 'model.embed_tokens.weight' of the model" \
        $command --model_name_or_path "$base" --adapter_name_or_path alien
done

# Names: a model saved without its head; wrappers, whose part of the names is named.
made inner 't = {n.removeprefix("model."): v for n, v in t.items()}; c["architectures"] = ["LlamaModel"]'
same "$tied" "$(loss inner)" "a model saved without its head"
expect 0 "tensors changed" merge --model inner --adapter lora --output_dir whole
grep -qaF '"model.layers.0.' whole/model.safetensors || fail "the merged model of an inner one"
made wrapped 't = {"_orig_mod." + n: v for n, v in t.items()}'
expect 3 "the names have '_orig_mod.'" eval --model_name_or_path wrapped --eval_dataset rows.jsonl
made inside 't = {n.replace("model.", "model.language_model.", 1): v for n, v in t.items()}'
expect 3 "the names have 'language_model.'" eval --model_name_or_path inside --eval_dataset rows.jsonl
made wrapped_adapter 't = {n.replace("base_model.model.", "base_model.model._orig_mod."): v for n, v in t.items()}' lora
expect 3 "the names have '_orig_mod.'" eval --model_name_or_path "$base" --adapter_name_or_path wrapped_adapter --eval_dataset rows.jsonl

# ensure_weight_tying: one trained table, under both names as PEFT looks for it.
"$trimtab" train --model_name_or_path "$base" --dataset_name rows.jsonl --output_dir both --max_steps 2 --learning_rate 1e-3 --device cpu \
    --lora_modules_to_save embed_tokens --ensure_weight_tying true --threads 1 --report_to none >said 2>&1 || fail "tied:" "$(tail -n 3 said)"
python3 - <<'END' || fail "the adapter has not one table under two names"
import json, tensors
t = tensors.read("both/adapter_model.safetensors")
one, other = (t["base_model.model." + n + ".weight"] for n in ("model.embed_tokens", "lm_head"))
base = None
assert one == other and json.load(open("both/adapter_config.json"))["ensure_weight_tying"] is True
END
trained=$(loss "$base" --adapter_name_or_path both)
made wrapping "$table; k = 'base_model.model.model.embed_tokens.'
t[k + 'modules_to_save.weight'] = t[k + 'weight']; t[k + 'original_module.weight'] = e" both
same "$trained" "$(loss "$base" --adapter_name_or_path wrapping)" "a trained table under the names of its wrapper"
made other_original "$table; k = 'base_model.model.model.embed_tokens.'
t[k + 'original_module.weight'] = rows(e, lambda n: reversed(range(n)))" both
expect 3 "embed_tokens.original_module.weight' of the adapter differs" eval --model_name_or_path "$base" --adapter_name_or_path other_original \
    --eval_dataset rows.jsonl
made other_trained "$table; t['base_model.model.model.embed_tokens.modules_to_save.weight'] = e" both
expect 3 "embed_tokens.modules_to_save.weight' of the adapter differs" eval --model_name_or_path "$base" --adapter_name_or_path other_trained \
    --eval_dataset rows.jsonl
differ "$tied" "$trained" "a trained table"
expect 0 "tensors changed" merge --model "$base" --adapter both --output_dir tied
grep -q '"tie_word_embeddings": true' tied/config.json || fail "the merged model is not tied"
made split 'd, s, b = t["base_model.model.lm_head.weight"]; t["base_model.model.lm_head.weight"] = (d, s, bytes(len(b)))' both
expect 3 "'base_model.model.lm_head.weight' of the adapter differs" eval --model_name_or_path "$base" --adapter_name_or_path split --eval_dataset rows.jsonl
"$trimtab" train --model_name_or_path "$base" --dataset_name rows.jsonl --output_dir both --max_steps 4 --learning_rate 1e-3 --device cpu \
    --lora_modules_to_save embed_tokens --ensure_weight_tying true --threads 1 --report_to none --adapter_name_or_path both \
    --overwrite_output_dir >said 2>&1 || fail "trained on:" "$(tail -n 3 said)"
# A layer behind the last one, which predicts a further token, is read by nobody; others are refused.
glm=$root/tests/golden/dense/glm4_moe/model
data=(--eval_dataset "$root/tests/golden/dense/train.jsonl" --bf16 false --threads 1 --json)
copied='t.update({n.replace(".layers.1.", ".layers.2."): t[n] for n in list(t) if ".layers.1." in n})'
made further "$copied; t['mtp.fc.weight'] = t['lm_head.weight']" "$glm"
expect 0 '"loss": ' eval --model_name_or_path further "${data[@]}"
with=$(grep -o '"loss": [0-9.]*' printed)
expect 0 "$with" eval --model_name_or_path "$glm" "${data[@]}"
made beyond "${copied//.layers.2./.layers.3.}" "$glm"
expect 3 "'model.layers.3.input_layernorm.weight'" eval --model_name_or_path beyond "${data[@]}"
finish
