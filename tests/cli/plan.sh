#!/bin/bash
# Plans for other machines, compared with tests/golden/plan. After a change of the needs of a rank or of the
# properties of a chip, review the differences and accept them: tests/cli/plan.sh BUILD --update
source "$(dirname "$0")/../tools/command_line.sh" "$1"
golden=$root/tests/golden/plan

# table NAME EXIT flags: compares the table and the log beside it
table() {
    local name=$1 wanted=$2 code=0
    shift 2
    "$trimtab" plan "$@" >"$folder/$name.txt" 2>&1 || code=$?
    [ $code -eq "$wanted" ] || fail "$name: exit $code instead of $wanted"
    [ "$update" = --update ] && cp "$folder/$name.txt" "$golden/$name.txt"
    diff -u "$golden/$name.txt" "$folder/$name.txt" || fail "$name"
}
update=$2
shapes=$root/bench/shapes

table m11b-2xh200 0 --device h200 --ranks 2 --config_json "$shapes/m11b.json" --sequence_length 4096 \
    --per_device_train_batch_size 4 --lora_r 8 --lora_target_modules q_proj,k_proj,v_proj,o_proj
table m11b-2xh200-64GiB 0 --device h200 --ranks 2 --device_memory 64GiB --config_json "$shapes/m11b.json" \
    --sequence_length 4096 --per_device_train_batch_size 4 --lora_r 8 \
    --lora_target_modules q_proj,k_proj,v_proj,o_proj
# Two machines of eight ranks that receive 10 Gbit/s each: sharding over both waits for the network.
table m11b-2x8h200 0 --device h200 --num_machines 2 --ranks 8 --config_json "$shapes/m11b.json" --sequence_length 4096 \
    --per_device_train_batch_size 4 --lora_r 8 --lora_target_modules q_proj,k_proj,v_proj,o_proj --network_bandwidth 1.25GB
table m11b-2x8h200-hybrid 0 --device h200 --num_machines 2 --num_processes 16 --sharding_strategy HYBRID_SHARD \
    --config_json "$shapes/m11b.json" --sequence_length 4096 --per_device_train_batch_size 4 --lora_r 8 \
    --lora_target_modules q_proj,k_proj,v_proj,o_proj --network_bandwidth 1.25GB
table l70b-2xh200-block 0 --device h200 --ranks 2 --recompute block --config_json "$shapes/l70b.json" \
    --sequence_length 2048 --per_device_train_batch_size 1 --lora_r 16 --lora_target_modules q_proj,v_proj
table l8b-h200 0 --device h200 --config_json "$shapes/l8b.json" --sequence_length 4096 \
    --per_device_train_batch_size 2 --lora_r 16
# All weights with moments of 8 bits; the paged optimizer moves them to the host where the others do not fit.
table l8b-full-adamw8-h200 0 --device h200 --config_json "$shapes/l8b.json" --use_peft false --optim adamw_8bit \
    --sequence_length 4096 --per_device_train_batch_size 1
table l8b-full-adamw8-90GiB 4 --device h200 --device_memory 90GiB --config_json "$shapes/l8b.json" --use_peft false \
    --optim adamw_8bit --sequence_length 4096 --per_device_train_batch_size 1
table l8b-full-120GiB 4 --device h200 --device_memory 120GiB --config_json "$shapes/l8b.json" --use_peft false \
    --sequence_length 4096 --per_device_train_batch_size 1
table l8b-full-paged8-90GiB 0 --device h200 --device_memory 90GiB --config_json "$shapes/l8b.json" --use_peft false \
    --optim paged_adamw_8bit --sequence_length 4096 --per_device_train_batch_size 1
table l8b-rtx4090 0 --device rtx4090 --config_json "$shapes/l8b.json" --sequence_length 4096 \
    --per_device_train_batch_size 2 --lora_r 16
table l8b-rtx4090-none 4 --device rtx4090 --recompute none --config_json "$shapes/l8b.json" \
    --sequence_length 4096 --per_device_train_batch_size 2 --lora_r 16
table l70b-2xrtx4090 4 --device rtx4090 --ranks 2 --config_json "$shapes/l70b.json" --sequence_length 2048 \
    --per_device_train_batch_size 1 --lora_r 16
table m11b-rtx4090-offload 0 --device rtx4090 --offload_params true --config_json "$shapes/m11b.json" \
    --sequence_length 4096 --per_device_train_batch_size 4 --lora_r 16

# A table for layers is in the unit of tied embedding and head. Where memory asks for it, it comes in parts, and a layer
# is the largest that the pool has room for.
e4b=(--device h200 --ranks 4 --config_json "$shapes/gemma4_e4b.json" --sequence_length 4096 --per_device_train_batch_size 1
    --lora_r 16 --lora_target_modules "q_proj,k_proj,v_proj,o_proj")
table e4b-4xh200 0 "${e4b[@]}"
table e4b-4xh200-24GiB 0 "${e4b[@]}" --device_memory 24GiB
table e4b-4xh200-16GiB-none 4 "${e4b[@]}" --device_memory 16GiB --recompute none

# One copy in FP8 of 70 billion parameters on one GPU.
table l70b-fp8-single-h200 0 --device h200 --config_json "$shapes/l70b.json" --base_dtype fp8 --fp8_products single \
    --sequence_length 2048 --per_device_train_batch_size 1 --lora_r 16 --lora_target_modules q_proj,k_proj,v_proj,o_proj

"$trimtab" plan --device h200 --config_json "$shapes/l70b.json" --base_dtype fp8 --sequence_length 4096 \
    --per_device_train_batch_size 1 --lora_r 16 --recompute none >"$folder/out" 2>&1 && fail "two copies of 70B fit"
grep -q 'what would fit: .*--fp8_products single (' "$folder/out" || fail "no advice of one copy" "$(tail -n 3 "$folder/out")"

# The number of buffers for gathered blocks, and the time of a step with them.
prefetch() {
    local buffers=$1 seconds=$2
    shift 2
    "$trimtab" plan --device h200 --ranks 2 --config_json "$shapes/m11b.json" --sequence_length 4096 --lora_r 8 \
        --per_device_train_batch_size 4 --lora_target_modules q_proj,k_proj,v_proj,o_proj --unsharded_blocks 0 "$@" >"$folder/out" || fail "$*"
    grep -Eq "^ +gathered units +$buffers MiB" "$folder/out" || fail "$*: not $buffers MiB" "$(grep gathered "$folder/out")"
    grep -Eq "^ +time of a step +$seconds s" "$folder/out" || fail "$*: not $seconds s" "$(grep 'a step' "$folder/out")"
}
prefetch 852 1.36 --backward_prefetch BACKWARD_PRE --forward_prefetch false
prefetch 436 1.42 --backward_prefetch BACKWARD_POST
prefetch 436 1.42 --backward_prefetch NO_PREFETCH
prefetch 852 1.39 --backward_prefetch NO_PREFETCH --forward_prefetch true

# FP8 products take less than three quarters of the time, one copy less memory than two; other chips say what they lack.
fp8() {
    "$trimtab" plan --device h200 --config_json "$shapes/l8b.json" --sequence_length 4096 --per_device_train_batch_size 2 \
        --lora_r 16 --lora_target_modules q_proj,k_proj,v_proj,o_proj "$@" >"$folder/out" 2>&1 || fail "$*"
    sed -nE 's/^ +weights shard +([0-9.]+) GiB$/\1/p; s/^ +time of a step +([0-9]+) ms.*/\1/p' "$folder/out" | tr '\n' ' '
}
read -r wide wide_ms <<<"$(fp8)"
read -r two two_ms <<<"$(fp8 --base_dtype fp8)"
read -r one one_ms <<<"$(fp8 --base_dtype fp8 --fp8_products forward)"
read -r single single_ms <<<"$(fp8 --base_dtype fp8 --fp8_products single)"
awk "BEGIN { exit !($two_ms < 0.75 * $wide_ms && $two <= $wide + 0.1 && $one < 0.6 * $wide && $one_ms < $wide_ms) }" ||
    fail "plans of fp8: $wide GiB $wide_ms ms, $two $two_ms, $one $one_ms"
awk "BEGIN { exit !($single == $one && $single_ms >= $two_ms && $single_ms < $one_ms) }" ||
    fail "a plan of fp8 with one copy: $single GiB $single_ms ms"
# Products in FP8 over 4 bits take less time and the same memory, where a chip has them; so does lm_head in FP8.
read -r nf4 nf4_ms <<<"$(fp8 --load_in_4bit true)"
read -r coded coded_ms <<<"$(fp8 --load_in_4bit true --fp8_products single)"
read -r head head_ms <<<"$(fp8 --base_dtype fp8 --fp8_lm_head true)"
awk "BEGIN { exit !($coded == $nf4 && $coded_ms < 0.8 * $nf4_ms && $head <= $two + 0.1 && $head_ms < 0.98 * $two_ms) }" ||
    fail "fp8 over 4 bits: $nf4 GiB $nf4_ms ms, $coded $coded_ms; with lm_head $head $head_ms, $two $two_ms"
"$trimtab" plan --device a100-80gb --config_json "$shapes/l8b.json" --load_in_4bit true --fp8_products single >"$folder/out" 2>&1 &&
    fail "an A100 multiplies fp8"
grep -q 'a100-80gb has no products in FP8' "$folder/out" || fail "no refusal of fp8 over 4 bits" "$(tail -n 3 "$folder/out")"
# Gate and up in FP8: half of what a token keeps of them, 32 layers of 2 x 14336 numbers for 8192 tokens.
kept() {
    "$trimtab" plan --device h200 --config_json "$shapes/l8b.json" --sequence_length 4096 --per_device_train_batch_size 2 \
        --lora_r 16 --lora_target_modules q_proj,k_proj,v_proj,o_proj --base_dtype fp8 --json "$@" >"$folder/out" 2>&1 || fail "$*"
    sed -nE 's/.*"activations": ([0-9]+).*/\1/p' "$folder/out"
}
wide=$(kept) coded=$(kept --fp8_gate_up e4m3)
[ $((wide - coded)) -gt $((32 * 8192 * (2 * 14336 - 64))) ] && [ $((wide - coded)) -le $((32 * 8192 * 2 * 14336)) ] ||
    fail "gate and up in fp8: $wide bytes of activations, $coded"
"$trimtab" plan --device h200 --config_json "$shapes/l8b.json" --base_dtype fp8 --sequence_length 4096 --recompute none \
    --per_device_train_batch_size 4 --lora_r 16 --device_memory 64GiB >"$folder/out" 2>&1 && fail "gate and up fit"
grep -q 'what would fit: .*--fp8_gate_up e4m3 (' "$folder/out" || fail "no advice of gate and up in fp8" "$(tail -n 3 "$folder/out")"
code=0
# A folder in FP8 needs what base_dtype fp8 needs; with scales of blocks where they are quantized by rows.
for config in '"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": ["lm_head"]' \
    '"quant_method": "compressed-tensors", "ignore": ["lm_head"], "config_groups": {"group_0": {"weights": {"type": "float"}}}'; do
    sed "0,/{/s//{\"quantization_config\": {$config},/" "$shapes/l8b.json" >"$folder/fp8.json"
    [ "$("$trimtab" plan --device h200 --config_json "$folder/fp8.json" --fp8_blocks rows | grep -v fp8)" = \
        "$("$trimtab" plan --device h200 --config_json "$shapes/l8b.json" --base_dtype fp8 | grep -v fp8)" ] ||
        fail "the plan of a folder in fp8: $config"
    "$trimtab" plan --device a100-80gb --config_json "$folder/fp8.json" --fp8_blocks rows >"$folder/out" 2>&1 &&
        fail "fp8 without such products"
    grep -q 'a100-80gb has no products in FP8 with a scale a row' "$folder/out" || fail "$config" "$(cat "$folder/out")"
done
# Blocks that are kept have one copy, and are decoded on any chip.
sed '0,/{/s//{"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},/' "$shapes/l8b.json" \
    >"$folder/blocks.json"
weights_of() { "$trimtab" plan --device h200 --sequence_length 64 "$@" | sed -nE 's/^ +weights shard +([0-9.]+) KiB$/\1/p'; }
weights() { "$trimtab" plan "$@" | sed -nE 's/^ +weights shard +([0-9.]+ GiB)$/\1/p'; }
# The weights of a folder say which of them are in FP8; its config.json names only lm_head as one that is not.
divided=$root/tests/golden/fp8/divided
told=$(weights_of --model_name_or_path "$divided") named=$(weights_of --config_json "$divided/config.json")
awk "BEGIN { exit !($told > 1.05 * $named) }" || fail "weights that are not in FP8: $told and $named KiB"
kept=$(weights --device a100-80gb --config_json "$folder/blocks.json")
[ -n "$kept" ] && [ "$kept" = "$(weights --device h200 --config_json "$shapes/l8b.json" --base_dtype fp8 --fp8_products none)" ] ||
    fail "blocks that are kept: '$kept'"
"$trimtab" plan --device a100-80gb --config_json "$shapes/l8b.json" --base_dtype fp8 >"$folder/out" 2>&1 || code=$?
[ $code -ne 0 ] && grep -q 'a100-80gb has no products in FP8 with a scale a row' "$folder/out" &&
    grep -q -- '--fp8_products none' "$folder/out" || fail "a chip without fp8" "$(cat "$folder/out")"
"$trimtab" plan --device a100-80gb --config_json "$shapes/l8b.json" --base_dtype fp8 --fp8_products none >/dev/null ||
    fail "decoded fp8 on a chip without fp8"

# Sums in order of the ranks travel through 16 MiB more.
gradients() {
    "$trimtab" plan --device h200 --ranks 2 --config_json "$shapes/m11b.json" --sequence_length 4096 --lora_r 8 |
        sed -nE 's/^ +gradients +([0-9.]+) MiB$/\1/p'
}
[ "$(awk "BEGIN { print $(TRIMTAB_DETERMINISTIC=1 gradients) - $(gradients) }")" = 16 ] || fail "ordered sums are not in the plan"

table l8b-h200-r4 0 --device h200 --config_json "$shapes/l8b.json" --sequence_length 4096 \
    --per_device_train_batch_size 2 --lora_r 4

nf4="--load_in_4bit true --bnb_4bit_use_double_quant true"
table l70b-nf4-2xh200-24GiB 0 --device h200 --ranks 2 --device_memory 24GiB --config_json "$shapes/l70b.json" \
    --sequence_length 2048 --per_device_train_batch_size 2 --lora_r 16 --lora_target_modules q_proj,v_proj $nf4
# 70B on two cards of 24 GiB. The buffers for gathered units have the size of the largest unit, which is the embedding or
# the head: with the vocabulary of Llama 3 (128,256 instead of 32,000) the run fits only with both gathered in parts.
small=(--device rtx4090 --ranks 2 --sequence_length 2048 --per_device_train_batch_size 2 --lora_r 16
    --lora_target_modules "q_proj,v_proj")
sed -E 's/("vocab_size":) 32000/\1 128256/' "$shapes/l70b.json" >"$folder/l70b-128k.json"
grep -q '"vocab_size": 128256' "$folder/l70b-128k.json" || fail "l70b.json has another vocabulary than 32000"
table l70b-nf4-2xrtx4090 0 "${small[@]}" --config_json "$shapes/l70b.json" $nf4
table l70b-128k-nf4-2xrtx4090 0 "${small[@]}" --config_json "$folder/l70b-128k.json" $nf4
table l8b-nf4-rtx4090 0 --device rtx4090 --config_json "$shapes/l8b.json" --sequence_length 4096 \
    --per_device_train_batch_size 4 --lora_r 16 --lora_target_modules all-linear $nf4
table l8b-int8-h200 0 --device h200 --config_json "$shapes/l8b.json" --sequence_length 4096 \
    --per_device_train_batch_size 2 --lora_r 16 --load_in_8bit true
bash "$root/bench/story-70b.sh" "$trimtab" >"$folder/story-70b.txt" || fail "bench/story-70b.sh"
[ "$update" = --update ] && cp "$folder/story-70b.txt" "$golden/story-70b.txt"
diff -u "$golden/story-70b.txt" "$folder/story-70b.txt" || fail "story-70b"

# The tables in the docs agree with the plan.
shown() {
    [[ $(<"$root/docs/$1") == *"$(<"$golden/$2.txt")"* ]] || fail "docs/$1 shows another table than tests/golden/plan/$2.txt"
}
shown memory.md m11b-2xh200-64GiB
shown qlora.md l70b-nf4-2xh200-24GiB
shown qlora.md story-70b

# --json has the same numbers
"$trimtab" plan --device=h200 --json --ranks 2 --config_json "$shapes/tiny.json" >"$folder/json" || fail "--json"
for part in '"fits": true' '"device": "h200"' '"ranks": 2' '"machines": 1' '"device_bytes": ' '"purposes": {"weights_shard": ' \
    '"host_bytes": [1-9]' '"step_seconds": ' '"recompute": \["none"'; do
    grep -q "$part" "$folder/json" || fail "--json has no $part"
done
"$trimtab" plan --device=cpu --json --config_json "$shapes/tiny.json" >"$folder/json" || fail "--json for the cpu"
grep -q '"step_seconds": null, "tokens_per_second": null' "$folder/json" || fail "--json estimates the time of a processor"
code=0
"$trimtab" plan --device h200 --device_memory 1GiB --json --config_json "$shapes/l8b.json" \
    >"$folder/json" 2>"$folder/err" || code=$?
[ $code -eq 4 ] || fail "a plan that does not fit: exit $code instead of 4"
grep -q '"fits": false' "$folder/json" || fail "--json of a plan that does not fit"
grep -q '^error: this run needs ' "$folder/err" || fail "no error says what is needed"

expect 2 "config_json is given, and the task is detection" plan --config_json "$shapes/tiny.json" --task detection
expect 2 "num_processes 15 is not a multiple of num_machines 2" plan --config_json "$shapes/tiny.json" --num_machines 2 --num_processes 15
expect 2 "at most 4096 ranks" plan --config_json "$shapes/tiny.json" --num_machines 1000000 --ranks 8

# Each setting in the hint of a plan that does not fit makes it fit, exactly as the hint names it.
follow() {
    local batch=$1 code=0 way flags
    shift
    "$trimtab" plan "$@" --per_device_train_batch_size "$batch" >"$folder/out" 2>"$folder/err" || code=$?
    [ $code -eq 4 ] || fail "$* fits: exit $code"
    grep -q '^  hint: what would fit: ' "$folder/err" || fail "$*: nothing would fit"
    while read -r way; do
        flags=$(sed -E "s/^half of the (\S+)/\1 $((batch / 2))/; s/^a quarter of the (\S+)/\1 $((batch / 4))/
            s/^an eighth of the (\S+)/\1 $((batch / 8))/; s/^([0-9]+) --ranks/--ranks \1/; s/ (with|and) / /g" <<<"${way% (*}")
        # shellcheck disable=SC2086
        "$trimtab" plan "$@" --per_device_train_batch_size "$batch" $flags >"$folder/out" 2>&1 ||
            fail "$*: '$way' does not fit:" "$(tail -n 2 "$folder/out")"
    done < <(sed -n 's/^  hint: what would fit: //p' "$folder/err" | sed 's/; or /\n/g')
}
l8b=(--device rtx4090 --config_json "$shapes/l8b.json" --sequence_length 4096)
follow 2 "${l8b[@]}" --recompute none
follow 2 "${l8b[@]}" --gradient_checkpointing false
follow 2 "${l8b[@]}" --recompute block --device_memory 17GiB
follow 64 "${l8b[@]}" --recompute block --device_memory 17GiB
follow 256 "${l8b[@]}" --sequence_length 1024
follow 64 "${l8b[@]}" --sequence_length 16384
follow 1 --device cpu "${l8b[@]:2}" --sharding_strategy NO_SHARD --ranks 4 --device_memory 12GiB
follow 1 "${l8b[@]}" --sharding_strategy SHARD_GRAD_OP --ranks 4 --recompute none --device_memory 12GiB
follow 8 --device cpu "${l8b[@]:2}" --recompute block --device_memory 20GiB
grep -q "recompute offload" "$folder/err" && fail "memory of the host is advised instead of memory of the host"
expect 4 "neither a smaller batch nor more ranks are enough: use shorter rows, or --load_in_4bit" plan "${l8b[@]}" \
    --device_memory 100MiB
expect 4 "use shorter rows" plan "${l8b[@]}" --device_memory 100MiB --load_in_4bit
grep -q 'load_in_4bit' err && fail "4 bits are advised to a base in 4 bits"
expect 2 "use_cpu is on, and device is h200" plan "${l8b[@]:2}" --device h200 --use_cpu true
expect 4 "more than 64 TiB" plan "${l8b[@]}" --per_device_train_batch_size 524287
expect 2 "a micro batch of 1048576 x 4096 tokens is too large" plan "${l8b[@]}" --per_device_train_batch_size 1048576

# Rows are no longer than the positions of the model, as in a run.
tiny=(--device h200 --config_json "$shapes/tiny.json")
expect 2 "sequence_length 4096 is more than the model's 2048 positions" plan "${tiny[@]}" --sequence_length 4096
"$trimtab" plan "${tiny[@]}" --sequence_length 2048 >"$folder/all" || fail "as long as the model has positions"
"$trimtab" plan "${tiny[@]}" --max_length 9999 >"$folder/out" 2>"$folder/err" || fail "a max_length beyond the positions"
cmp "$folder/all" "$folder/out" || fail "max_length is not bounded by the positions"
"$trimtab" plan "${tiny[@]}" --max_length 9999 --packing >"$folder/packs" 2>&1 || fail "packs of 9999 tokens"
cmp -s "$folder/all" "$folder/packs" && fail "packs are bounded by the positions"
grep -q "max_length 9999 is more than the model's 2048 positions" "$folder/err" || fail "the bound is not said"

# a model folder and a training configuration work too
model=$root/tests/golden/llama2/model
"$trimtab" plan --model "$model" --max_length 64 --device cpu >"$folder/out" || fail "a model folder"
grep -q 'planned for cpu, recompute block' "$folder/out" || fail "on the CPU every block runs again"
printf 'model_name_or_path: %s\ndataset_name: x.jsonl\nmax_length: 64\ngradient_checkpointing: false\n' "$model" \
    >"$folder/sft.yaml"
"$trimtab" plan --config "$folder/sft.yaml" --device cpu | grep -q 'recompute cheap' || fail "a training file"
"$trimtab" plan --config_json "$shapes/tiny.json" --device abacus >"$folder/out" 2>"$folder/err" && fail "an abacus"
grep -q "no chip is called 'abacus'" "$folder/err" || fail "an unknown chip is not named"
TRIMTAB_CUDA_PLUGIN='' expect 10 "no GPU can be used" plan --config_json "$shapes/tiny.json" --device cuda
TRIMTAB_CUDA_PLUGIN='' expect 10 "no GPU can be used" plan --config_json "$shapes/tiny.json" --device=cuda
"$trimtab" plan --device h200 2>"$folder/err" && fail "no model"
# accelerate's file for several machines: a plan connects to none of them
printf 'distributed_type: FSDP\nnum_machines: 3\nnum_processes: 6\nmachine_rank: 0\n' >"$folder/fsdp.yaml"
"$trimtab" plan --config_file "$folder/fsdp.yaml" --config_json "$shapes/tiny.json" --device h200 >"$folder/out" ||
    fail "accelerate's file"
grep -q 'memory of a rank (6 in all on 3 machines)' "$folder/out" || fail "machines of accelerate's file are not planned for"
finish
