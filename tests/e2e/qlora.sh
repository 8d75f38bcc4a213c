#!/usr/bin/env bash
# QLoRA from end to end on the demo's model: training over 4 bits on two ranks, evaluation and completion over the
# same base. The files are those of any LoRA run.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
trimtab=$1/trimtab
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cd "$root"
model=examples/demo/model
four_bits=(--load_in_4bit true --bnb_4bit_use_double_quant true)
fail() {
    echo "FAILED: $*"
    exit 1
}

"$trimtab" train --config examples/demo/sft.yaml --max_steps 60 --output_dir "$out/adapter" "${four_bits[@]}" 2>"$out/said" ||
    { cat "$out/said"; fail "training"; }
grep -q '^4-bit base: nf4 in blocks of 64, double quantization, computes in bfloat16: 35 matrices, 4.22 bits a weight$' \
    "$out/said" || fail "what is in force is not said"

"$trimtab" eval --model_name_or_path $model --eval_dataset examples/demo/data/test.jsonl --max_length 256 --ranks 2 \
    --per_device_eval_batch_size 25 --exact_match true --max_new_tokens 64 --json true "${four_bits[@]}" \
    --adapter_name_or_path "$out/adapter" >"$out/eval.json" 2>"$out/said"
match=$(sed -n 's/.*"exact_match": *\([0-9.]*\).*/\1/p' "$out/eval.json")
echo "exact match over 4 bits: $match"
awk "BEGIN { exit !($match > 0.85) }" || fail "exact match $match"
grep -q '^4-bit base: ' "$out/said" || fail "eval does not say what is in force"

# a completion over 4 bits; the prompt is not a training row
head -n 1 examples/demo/data/test.jsonl >"$out/prompt.jsonl"
"$trimtab" generate --model_name_or_path $model --adapter_name_or_path "$out/adapter" "${four_bits[@]}" \
    --prompt_file "$out/prompt.jsonl" --max_new_tokens 64 --json true 2>"$out/said" | grep -q 'name' || fail "generate"

# without 4 bits the same adapter_config.json
"$trimtab" train --config examples/demo/sft.yaml --max_steps 1 --output_dir "$out/plain" 2>"$out/said"
cmp "$out/adapter/adapter_config.json" "$out/plain/adapter_config.json" || fail "adapter_config.json differs"

# contradicting settings
code=0
"$trimtab" train --config examples/demo/sft.yaml --output_dir "$out/full" --use_peft false --load_in_4bit true \
    2>"$out/said" || code=$?
[ $code -eq 2 ] || fail "a quantized base that trains: exit $code"
grep -q 'a quantized base cannot train' "$out/said" || fail "no reason is given"
code=0
"$trimtab" eval --model_name_or_path tests/golden/qlora/fp4 --eval_dataset examples/demo/data/test.jsonl --load_in_8bit true \
    2>"$out/said" || code=$?
[ $code -eq 2 ] || fail "8 bits of 4: exit $code"

"$trimtab" bench train --config_json bench/shapes/tiny.json --load_in_4bit true --sequence_length 32 --steps 1 \
    --device cpu | grep -q '"dequantize"' || fail "bench train"
echo "all as expected"
