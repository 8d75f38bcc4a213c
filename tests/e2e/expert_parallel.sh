#!/usr/bin/env bash
# Ranks that share the experts of a mixture: the curve of ranks that gather them, the same bits twice and at every level of
# recomputation, in codes, packed, with ranks that have no tokens, over processes; other numbers of them after a resume.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
mkdir model && cp "$root"/tests/support/tiny_tokenizer/* model/ && chmod -R u+w model
cat >model/config.json <<'END'
{"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "vocab_size": 263, "hidden_size": 64, "head_dim": 16,
 "intermediate_size": 40, "moe_intermediate_size": 32, "num_experts": 8, "num_experts_per_tok": 3, "num_hidden_layers": 2,
 "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 128, "norm_topk_prob": true,
 "tie_word_embeddings": false, "initializer_range": 0.2}
END
for i in $(seq 30); do echo "{\"prompt\": \"$i + 1 =\", \"completion\": \" $((i + 1)) $((i * i)) apples\"}"; done >train.jsonl
head -n 3 train.jsonl >few.jsonl
base=(--model_name_or_path model --init random --dataset_name train.jsonl --report_to none --threads 1 --learning_rate 0.01
    --lora_dropout 0 --logging_steps 1 --lora_r 4 --per_device_train_batch_size 1 --max_steps 4)
adapted=(--lora_target_modules q_proj v_proj --target_parameters mlp.experts.gate_up_proj mlp.experts.down_proj)
# run NAME RANKS SHARING flags...
run() {
    expect 0 "" train "${base[@]}" --output_dir "$1" --ranks "$2" --expert_parallel "$3" "${@:4}"
    [ "$3" = 1 ] || grep -q "experts shared by $3 ranks" err || fail "$1: the plan says nothing of $3 ranks:" "$(cat err)"
}
losses() { sed -nE 's/.*"loss": *([0-9.]+).*/\1/p' "$1/metrics.jsonl"; }
# curve A B: their losses are equal within fp32's rounding.
# curve A B [BOUND]
curve() {
    paste <(losses "$1") <(losses "$2") >curves
    [ "$(wc -l <curves)" -ge 4 ] || fail "$1, $2: no curves:" "$(cat curves)"
    awk -v bound="${3:-2e-5}" '{ d = $1 - $2; if (d < 0) d = -d; if (!(d <= bound * $1)) bad = 1 } END { exit bad }' curves ||
        fail "$1 and $2 lose otherwise:" "$(cat curves)"
}
same() { cmp "$1/adapter_model.safetensors" "$2/adapter_model.safetensors" || fail "$1 and $2 are other adapters"; }

for ranks in 2 4; do
    run gathered-$ranks $ranks 1 --bf16 false "${adapted[@]}"
    for sharing in 2 4; do
        [ $sharing -le $ranks ] || continue
        run shared-$ranks-$sharing $ranks $sharing --bf16 false "${adapted[@]}"
        curve gathered-$ranks shared-$ranks-$sharing
    done
done
run twice 4 2 --bf16 false "${adapted[@]}"
same shared-4-2 twice
for level in none cheap block; do
    run level-$level 2 2 --bf16 false "${adapted[@]}" --recompute $level
    same shared-2-2 level-$level
done

# What is adapted, how batches are made, how weights are stored.
while read -r name flags; do
    read -ra flags <<<"$flags"
    run "$name-1" 2 1 --bf16 false "${flags[@]}"
    run "$name-2" 2 2 --bf16 false "${flags[@]}"
    curve "$name-1" "$name-2"
done <<END
attention --lora_target_modules q_proj
packed ${adapted[*]} --packing true --max_length 64
nf4 ${adapted[*]} --load_in_4bit true --quantize_moe_experts true
fp8 ${adapted[*]} --base_dtype fp8 --fp8_products none --quantize_moe_experts true
int8 ${adapted[*]} --load_in_8bit true --quantize_moe_experts true
offloaded ${adapted[*]} --sharding_strategy SHARD_GRAD_OP
accumulated ${adapted[*]} --gradient_accumulation_steps 3
END
# A change of the last bit can move an activation to the next code in FP8.
products=("${adapted[@]}" --seed 3 --base_dtype fp8 --fp8_products single --quantize_moe_experts true --bf16 false)
run products-1 2 1 "${products[@]}"
run products-2 2 2 "${products[@]}"
run products-again 2 2 "${products[@]}"
curve products-1 products-2 1e-3
same products-2 products-again
run bf16 4 2 "${adapted[@]}"
run bf16-twice 4 2 "${adapted[@]}"
same bf16 bf16-twice

# Ranks without tokens: three rows of four ranks, in training and in evaluation.
few=(--dataset_name few.jsonl --eval_dataset few.jsonl --eval_strategy steps --eval_steps 2 --bf16 false)
run few-1 4 1 "${adapted[@]}" "${few[@]}"
run few-4 4 4 "${adapted[@]}" "${few[@]}"
curve few-1 few-4
run few-block 4 4 "${adapted[@]}" "${few[@]}" --recompute block
same few-4 few-block

# A run goes on with other numbers of ranks that share experts, and merges as any other.
steps=(--bf16 false --save_strategy steps --save_steps 2 "${adapted[@]}")
for change in "2 1" "1 2" "4 2"; do
    read -r before after <<<"$change"
    run "begun-$before-$after" 4 "$before" "${steps[@]}"
    mkdir "on-$before-$after" && cp -r "begun-$before-$after/checkpoint-2" "on-$before-$after/"
    run "on-$before-$after" 4 "$after" "${steps[@]}" --resume_from_checkpoint true
    tail -n 2 <(losses "begun-$before-$after") >a
    tail -n 2 <(losses "on-$before-$after") >b
    paste a b >curves
    awk '{ d = $1 - $2; if (d < 0) d = -d; if (!(d <= 2e-5 * $1)) bad = 1 } END { exit bad || NR < 2 }' curves ||
        fail "resumed with $after instead of $before:" "$(cat curves)"
done

# Two processes, over TCP: the bits of two threads.
export MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + $$ % 20000))
process() { # RANK flags...
    RANK=$1 WORLD_SIZE=2 exec "$trimtab" train "${base[@]}" --output_dir tcp --device cpu --expert_parallel 2 --bf16 false \
        "${adapted[@]}" "${@:2}"
}
process 1 >other 2>&1 &
(process 0) >printed 2>err || fail "two processes:" "$(cat err other)"
wait $!
same shared-2-2 tcp
# One is killed: the other ends with one error that says which.
rm -r tcp
process 1 --max_steps 100000 >other 2>&1 &
killed=$!
(for _ in $(seq 600); do grep -q '"step": 3' tcp/metrics.jsonl && break; sleep 0.1; done; kill -KILL $killed) 2>/dev/null &
code=0
(process 0 --max_steps 100000) >printed 2>err || code=$?
wait
if [ $code -ne 10 ] || [ "$(grep -c '^error:' err)" -ne 1 ] || ! grep -q 'rank 1' err; then
    fail "a killed process, exit $code:" "$(cat err)"
fi
unset MASTER_ADDR MASTER_PORT

# Refusals: numbers that divide neither ranks nor experts, strategies and models that have nothing to share.
refuse() { # CODE TEXT RANKS SHARING flags...
    expect "$1" "$2" train "${base[@]}" --output_dir refused --ranks "$3" --expert_parallel "$4" "${@:5}"
}
refuse 2 "expert_parallel 4: the 2 ranks that split a unit cannot be divided into groups of 4" 2 4 "${adapted[@]}"
refuse 2 "expert_parallel 3: 8 experts of a layer cannot be divided by it" 3 3 "${adapted[@]}"
refuse 2 "with NO_SHARD every rank holds all experts" 2 2 "${adapted[@]}" --sharding_strategy NO_SHARD
refuse 2 "the model has no experts whose weights are frozen" 2 2 --use_peft false
refuse 2 "cannot be divided among 2 ranks: a block of their scales has weights of several of them" 2 2 "${adapted[@]}" \
    --load_in_4bit true --bnb_4bit_use_double_quant true --quantize_moe_experts true

# Shared experts, and dense first layers.
sed -i 's/.*/{"model_type": "glm4_moe", "architectures": ["Glm4MoeForCausalLM"], "vocab_size": 263, "hidden_size": 64, "head_dim": 16, "intermediate_size": 64, "moe_intermediate_size": 32, "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "num_hidden_layers": 3, "first_k_dense_replace": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "norm_topk_prob": true, "tie_word_embeddings": false, "initializer_range": 0.2}/;q' model/config.json
run glm-1 4 1 --bf16 false "${adapted[@]}"
run glm-4 4 4 --bf16 false "${adapted[@]}"
curve glm-1 glm-4
finish
