#!/usr/bin/env bash
# Rows of tokens that train beside an adapter (trainable_token_indices), of a model with one table and of one with two:
# first values; one curve on one, two and four ranks, with packing, over four bits; a resumed run ends with the same
# bytes; what is generated with the adapter is what the merged model generates; what is refused.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
golden=$root/tests/golden
for folder in qwen2 llama2; do
    cp -r "$golden/$folder/model" $folder && chmod -R u+w $folder
done
cp "$root"/tests/support/tiny_tokenizer/* qwen2/
run=(--model_name_or_path qwen2 --dataset_name "$golden/qwen2/train.jsonl" --bf16 false --lora_target_modules q_proj v_proj
    --lora_r 4 --lora_dropout 0 --max_steps 6 --learning_rate 0.02 --save_steps 3 --save_strategy steps --logging_steps 1
    --trainable_token_indices "[217, 48, 107, 9, 32]" --per_device_train_batch_size 4)
expect 0 'adapted: embed_tokens 320, ' train "${run[@]}" --output_dir tuned
expect 0 '' train "${run[@]}" --output_dir again --resume_from_checkpoint tuned/checkpoint-3
cmp -s tuned/adapter_model.safetensors again/adapter_model.safetensors || fail "a resumed run ends with another adapter"
expect 0 'embed_tokens.token_adapter.trainable_tokens_delta [5, 64]' inspect tuned --tensors
! grep -q 'lm_head' printed || fail "one table is saved twice:" "$(cat printed)"
# losses FOLDER: the loss of each step.
losses() {
    grep -o '"loss": *[0-9.]*' "$1"/metrics.jsonl | tr -d '":a-z '
}
same_losses() {
    paste <(losses "$1") <(losses "$2") | awk '{ d = $1 - $2; if (d < 0) d = -d; if (NF != 2 || d > 1e-5 * $1) bad = 1 }
        END { exit bad || NR != 6 }' || fail "losses of $2:" "$(losses "$2")" "and not:" "$(losses "$1")"
}
for bits in none nf4; do
    one=("${run[@]}" --save_strategy no)
    [ $bits = none ] || one+=(--load_in_4bit --bnb_4bit_quant_type nf4)
    expect 0 '' train "${one[@]}" --output_dir "one_$bits"
    for ranks in 2 4; do
        expect 0 '' train "${one[@]}" --output_dir "on_$ranks$bits" --ranks $ranks --threads 1 \
            --per_device_train_batch_size $((4 / ranks)) --recompute block
        same_losses "one_$bits" "on_$ranks$bits"
    done
done
! cmp -s <(losses one_none) <(losses one_nf4) || fail "weights of four bits give the same losses"
expect 0 '' train "${one[@]}" --output_dir packed --packing --max_length 64
expect 0 '' train "${one[@]}" --output_dir packed_2 --packing --max_length 64 --ranks 2 --threads 1 --per_device_train_batch_size 2
same_losses packed packed_2
# A new adapter begins with the table's own rows; another loss would come of others.
begins=(--max_steps 1 --learning_rate 1e-30 --save_strategy no)
expect 0 '' train "${run[@]}" "${begins[@]}" --output_dir new
expect 0 '' train "${run[@]}" "${begins[@]}" --output_dir without --trainable_token_indices none
cmp -s <(losses new) <(losses without) || fail "new rows change the loss: $(losses new), and not $(losses without)"
expect 0 'model.embed_tokens.weight               0.000e+00' merge --model qwen2 --adapter new --output_dir unchanged
ask=(generate --prompt 'the rain' --max_new_tokens 12 --temperature 0 --bf16 false --repetition_penalty 1.3)
# answer FILE flags...: the words that follow.
answer() {
    "$trimtab" "${ask[@]}" "${@:2}" >"$1" 2>err || fail "generate ${*:2}:" "$(cat err)"
}
expect 0 '' merge --model qwen2 --adapter tuned --output_dir merged
grep -q '"tie_word_embeddings": true' merged/config.json || fail "the merged model has two tables"
answer of_merged --model_name_or_path merged
for how in "" "--ranks 2 --threads 1" "--ranks 2 --threads 1 --offload_params true"; do
    # shellcheck disable=SC2086
    answer of_tuned --model_name_or_path qwen2 --adapter_name_or_path tuned $how
    cmp -s of_tuned of_merged || fail "generate $how: '$(cat of_tuned)', and not '$(cat of_merged)'"
done
# Each of the two its own rows of one table: the merged model has two.
expect 0 '' train "${run[@]}" --output_dir apart --trainable_token_indices '{"embed_tokens": [9, 48], "lm_head": [48, 32]}'
expect 0 'lm_head.token_adapter.trainable_tokens_delta [2, 64]' inspect apart --tensors
expect 0 '' merge --model qwen2 --adapter apart --output_dir merged_apart
grep -q '"tie_word_embeddings": false' merged_apart/config.json || fail "the merged model has one table"
answer of_merged --model_name_or_path merged_apart
answer of_tuned --model_name_or_path qwen2 --adapter_name_or_path apart
cmp -s of_tuned of_merged || fail "rows of each table: '$(cat of_tuned)', and not '$(cat of_merged)'"
# The reference of a preference has the table's own rows.
printf '{"prompt": "a", "chosen": "b", "rejected": "c"}\n%.0s' {1..8} >pairs.jsonl
expect 0 '' train "${run[@]}" "${begins[@]}" --objective dpo --dataset_name pairs.jsonl --output_dir dpo
expect 0 '' train "${run[@]}" --objective dpo --dataset_name pairs.jsonl --output_dir dpo_on --adapter_name_or_path tuned
expect 0 '' eval --model_name_or_path qwen2 --adapter_name_or_path dpo --objective dpo --eval_dataset pairs.jsonl
# Two tables; a base of random numbers.
two=(--model_name_or_path llama2 --dataset_name "$golden/llama2/train.jsonl" --bf16 false --max_steps 2 --lora_dropout 0)
expect 0 '' train "${two[@]}" --trainable_token_indices '[9, 48]' --output_dir two
! "$trimtab" inspect two --tensors | grep -q lm_head || fail "the head has rows of the embeddings' tokens"
expect 0 '' train "${two[@]}" --trainable_token_indices '[9, 48]' --output_dir random --init random
# A token that is nowhere in the rows: no gradient is no fault, and its row stays.
expect 0 '' train "${two[@]}" --max_steps 5 --trainable_token_indices '[116]' --output_dir absent
expect 0 'model.embed_tokens.weight               0.000e+00' merge --model llama2 --adapter absent --output_dir absent_merged
# What is refused.
expect 2 'trainable_token_indices lists token 257; the model has tokens 0 to 256' \
    train "${two[@]}" --trainable_token_indices '[9, 257]' --output_dir no
expect 2 'trainable_token_indices lists token 9 twice' train "${two[@]}" --trainable_token_indices '[9, 48, 9]' --output_dir no
expect 2 "'q_proj' is no module with a row for each token" \
    train "${two[@]}" --trainable_token_indices '{"q_proj": [9]}' --output_dir no
expect 2 'must be a list of ids of tokens' train "${two[@]}" --trainable_token_indices '{"lm_head": 9}' --output_dir no
expect 2 'has an entry that is no integer' train "${two[@]}" --trainable_token_indices '["a"]' --output_dir no
expect 2 "has tokens of 'model.embed_tokens', which modules_to_save trains too" \
    train "${two[@]}" --trainable_token_indices '[9]' --lora_modules_to_save embed_tokens --output_dir no
expect 2 "has tokens of 'lm_head', which target_modules trains too" \
    train "${two[@]}" --trainable_token_indices '{"lm_head": [9]}' --lora_target_modules lm_head --output_dir no
expect 2 "ensure_weight_tying: trainable_token_indices has other tokens of 'lm_head' than of 'model.embed_tokens'" \
    train "${run[@]}" --trainable_token_indices '{"embed_tokens": [9, 48], "lm_head": [48]}' --lora_modules_to_save norm \
    --ensure_weight_tying --output_dir no
expect 2 "trained rows of tokens in an adapter: 'model.embed_tokens.weight'" \
    export gguf --model qwen2 --adapter tuned --adapter_only --output_file lora.gguf
cp -r "$golden/qwen2/adapter_random" other
expect 2 "several adapters at a time, and one of them has trainable_token_indices" generate --model_name_or_path qwen2 \
    --prompt a --adapter_name_or_path tuned,other
finish
