#!/bin/bash
# fp8_lm_head: the head in FP8 on any number of ranks, over weights quantized during loading and stored in FP8; in
# evaluation and generation; resumed; and refused where it cannot be.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
demo=$root/examples/demo

# A trained model whose head is not the table of its embeddings: an adapter with a copy of lm_head is merged into it.
data="--dataset_name $demo/data/train.jsonl --max_length 256 --threads 1 --report_to none"
"$trimtab" train --model_name_or_path "$demo/model" $data --output_dir copied --max_steps 1 --learning_rate 1e-9 \
    --lora_modules_to_save lm_head >said 2>&1 || fail "no copy of lm_head:" "$(tail -n 3 said)"
expect 0 "tie_word_embeddings false" merge --model "$demo/model" --adapter copied --output_dir untied --save_dtype bfloat16

# run NAME settings...: eight steps; their losses go to NAME.losses.
run() {
    local name=$1
    shift
    "$trimtab" train --model_name_or_path untied $data --output_dir "$name" --max_steps 8 --logging_steps 1 \
        --lora_target_modules all-linear --learning_rate 5e-4 --lora_dropout 0 --bf16 false --base_dtype fp8 "$@" >"$name.said" 2>&1 ||
        { fail "$name:" "$(tail -n 3 "$name.said")"; return; }
    grep -o '"loss": [0-9.]*' "$name/trainer_state.json" | cut -d' ' -f2 >"$name.losses"
    [ "$(wc -l <"$name.losses")" -eq 8 ] || fail "$name has not eight losses"
}
# within A B SHARE: no loss of A is further than SHARE of it from that of B
within() {
    paste "$1.losses" "$2.losses" | awk -v share="$3" '{ d = $1 - $2; if (d < 0) d = -d; if (d > share * $2) exit 1 }' ||
        fail "$1 is not within $3 of $2:" "$(paste "$1.losses" "$2.losses")"
}
on=(--fp8_lm_head true --per_device_train_batch_size 4)
run plain --per_device_train_batch_size 4
run whole "${on[@]}"
grep -q '^8-bit base: fp8 with a scale a row, products in fp8, lm_head too, .*: 36 matrices' whole.said ||
    fail "lm_head is not in fp8:" "$(grep 8-bit whole.said)"
grep -qF "try it: trimtab generate --model_name_or_path untied --base_dtype fp8 --fp8_lm_head true --adapter_name_or_path whole" whole.said ||
    fail "the command that tries the result has another base:" "$(grep 'try it' whole.said)"
cmp -s plain.losses whole.losses && fail "fp8_lm_head changes nothing"
within whole plain 0.03
for split in "--ranks 2 --per_device_train_batch_size 2" "--ranks 2 --per_device_train_batch_size 2 --sharding_strategy NO_SHARD" \
    "--ranks 4 --per_device_train_batch_size 1 --sharding_strategy SHARD_GRAD_OP --recompute block" "--offload_params true"; do
    run split "${on[@]}" $split --overwrite_output_dir
    within split whole 0.01 # a sum in another order can move a number to the next code
done
for products in single forward none; do
    run "of_$products" "${on[@]}" --fp8_products "$products"
    within "of_$products" plain 0.03
done

# Stopped and resumed is not stopped, bit for bit; another head is another base.
run saved "${on[@]}" --save_strategy steps --save_steps 4
run resumed "${on[@]}" --resume_from_checkpoint saved/checkpoint-4
cmp whole/adapter_model.safetensors resumed/adapter_model.safetensors || fail "a resumed run makes other bits"
expect 2 "fp8_lm_head was true and is false" train --model_name_or_path untied $data --output_dir other --max_steps 8 \
    --lora_target_modules all-linear --learning_rate 5e-4 --lora_dropout 0 --bf16 false --base_dtype fp8 --logging_steps 1 \
    --per_device_train_batch_size 4 --resume_from_checkpoint saved/checkpoint-4

# Evaluation and generation over the same base, and over a folder in FP8, whose head is stored in numbers.
loss() {
    "$trimtab" eval --adapter_name_or_path whole --eval_dataset "$demo/data/test.jsonl" --max_length 256 --json "$@" 2>why | grep -o '"loss": [0-9.]*' | cut -d' ' -f2
}
expect 0 "" quantize --model_name_or_path untied --output_dir stored --to fp8
made=$(loss --model_name_or_path untied --base_dtype fp8 --fp8_lm_head true) read=$(loss --model_name_or_path stored --fp8_lm_head true)
[ -n "$made" ] && [ "$made" = "$read" ] || fail "evaluation: '$made' and over a folder in fp8 '$read'" "$(cat why)"
[ "$made" != "$(loss --model_name_or_path untied --base_dtype fp8)" ] || fail "evaluation does not know fp8_lm_head"
expect 0 "lm_head too" generate --model_name_or_path untied --adapter_name_or_path whole --base_dtype fp8 --fp8_lm_head true --max_new_tokens 4 \
    --prompt "Jormund Tresmann has paid 40 euros 40 for 30 carved cards, handed over at 92 Peppercroft Lane this Wednesday at 18:50.
"

expect 2 "is the table of its embeddings" train --model_name_or_path "$demo/model" $data --output_dir no --base_dtype fp8 --fp8_lm_head true
expect 2 "fp8_lm_head is for a base in fp8" train --model_name_or_path untied $data --output_dir no --fp8_lm_head true
expect 2 "modules_to_save trains 'lm_head'" train --model_name_or_path untied $data --output_dir no --base_dtype fp8 --fp8_lm_head true \
    --lora_modules_to_save lm_head
finish
