#!/usr/bin/env bash
# Tokens that the model's folder lacks (add_tokens, add_special_tokens), of a model with one table and of one with two:
# ids and rows; one curve on one, two and four ranks and over four bits; a resumed run ends with the same bytes; the
# adapter, the merged model and a training that goes on have them; whole tables; what is refused.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
golden=$root/tests/golden
for family in qwen2 llama2; do
    cp -r "$golden/$family/model" $family && chmod -R u+w $family
    cp "$root"/tests/support/tiny_tokenizer/* $family/
done
for i in 1 2 3 4 5 6 7 8; do
    printf '{"prompt": "<ask>the rain %s", "completion": " in<sum> the main<|done|>"}\n' $i
done >rows.jsonl
new=(--add_tokens '<ask>' '<sum>' --add_special_tokens '<|done|>')
run=(--dataset_name rows.jsonl --bf16 false --lora_target_modules q_proj v_proj --lora_r 4 --lora_dropout 0 --max_steps 6
    --learning_rate 0.02 --save_steps 3 --save_strategy steps --logging_steps 1 --per_device_train_batch_size 4)
losses() {
    grep -o '"loss": *[0-9.]*' "$1"/metrics.jsonl | tr -d '":a-z '
}
same_losses() {
    paste <(losses "$1") <(losses "$2") | awk '{ d = $1 - $2; if (d < 0) d = -d; if (NF != 2 || d > 2e-5 * $1) bad = 1 }
        END { exit bad || NR != 6 }' || fail "losses of $2:" "$(losses "$2")" "and not:" "$(losses "$1")"
}
ask=(generate --prompt '<ask>the rain 3' --max_new_tokens 8 --temperature 0 --bf16 false --repetition_penalty 1.3)
# answer FILE flags...: the words that follow.
answer() {
    "$trimtab" "${ask[@]}" "${@:2}" >"$1" 2>err || fail "generate ${*:2}:" "$(cat err)"
}
loss_of() {
    "$trimtab" eval --eval_dataset rows.jsonl --bf16 false "$@" 2>err | grep '^loss ' || fail "eval $*:" "$(cat err)"
}
expect 0 'tokens            208' data --model_name_or_path qwen2 --dataset_name rows.jsonl "${new[@]}" --rows 1
# The tokenizer has 259 ids. The tables of the one model have 290 rows, which is enough unless a multiple is asked for;
# those of the other 257.
expect 0 '' train "${run[@]}" --model_name_or_path qwen2 "${new[@]}" --max_steps 1 --output_dir spare
! grep -q 'in place of' err || fail "rows that were there are new"
for family in qwen2 llama2; do
    one=("${run[@]}" --model_name_or_path "$family" "${new[@]}")
    rows=262 before=257
    [ $family = llama2 ] || { rows=384 before=290 && one+=(--resize_to_multiple_of 128); }
    columns=$(grep -o '"hidden_size": [0-9]*' $family/config.json | tr -dc 0-9)
    expect 0 "embeddings and head have $rows rows in place of $before" train "${one[@]}" --output_dir $family.tuned
    expect 0 '' train "${one[@]}" --output_dir $family.again --resume_from_checkpoint $family.tuned/checkpoint-3
    cmp -s $family.tuned/adapter_model.safetensors $family.again/adapter_model.safetensors || fail "$family: a resumed run ends otherwise"
    expect 0 "embed_tokens.token_adapter.trainable_tokens_delta [3, $columns]" inspect $family.tuned --tensors
    grep -q 'embed_tokens.token_adapter.base_layer.weight' printed || fail "$family: no embeddings beside the adapter"
    grep -q '"content": "<|done|>"' $family.tuned/tokenizer.json || fail "$family: the saved tokenizer lacks a token"
    for bits in none nf4; do
        with=("${one[@]}" --save_strategy no)
        [ $bits = none ] || with+=(--load_in_4bit --bnb_4bit_quant_type nf4)
        expect 0 '' train "${with[@]}" --output_dir "$family.1$bits"
        for ranks in 2 4; do
            expect 0 '' train "${with[@]}" --output_dir "$family.$ranks$bits" --ranks $ranks --threads 1 \
                --per_device_train_batch_size $((4 / ranks)) --recompute block
            same_losses "$family.1$bits" "$family.$ranks$bits"
        done
    done
    same_losses $family.tuned $family.1none
    # The adapter has whole tables, or only the rows that train: the others are computed again.
    expect 0 '' train "${one[@]}" --save_strategy no --save_embedding_layers false --output_dir $family.small
    ! "$trimtab" inspect $family.small --tensors | grep -q base_layer || fail "$family: tables beside the adapter"
    expect 0 '' merge --model $family --adapter $family.tuned --output_dir $family.merged
    grep -q '"vocab_size": '$rows $family.merged/config.json || fail "$family: config.json has other rows"
    cmp -s $family.merged/tokenizer.json $family.tuned/tokenizer.json || fail "$family: the merged model has another tokenizer"
    want=$(loss_of --model_name_or_path $family.merged)
    with_tables=tuned
    # without tables nobody knows of rows that no token has
    [ $family = qwen2 ] || with_tables="tuned small"
    for adapter in $with_tables; do
        [ "$(loss_of --model_name_or_path $family --adapter_name_or_path $family.$adapter)" = "$want" ] ||
            fail "$family: the loss with $adapter is not $want"
    done
    answer of_merged --model_name_or_path $family.merged
    for how in "" "--ranks 2 --threads 1"; do
        # shellcheck disable=SC2086
        answer of_tuned --model_name_or_path $family --adapter_name_or_path $family.tuned $how
        cmp -s of_tuned of_merged || fail "$family: generate $how: '$(cat of_tuned)', and not '$(cat of_merged)'"
    done
    # A training goes on with the adapter and its tokenizer; its result has them too.
    expect 0 'the tokenizer is that of the adapter' train "${run[@]}" --model_name_or_path $family \
        --adapter_name_or_path $family.tuned --output_dir $family.more --ranks 2 --threads 1
    cmp -s $family.more/tokenizer.json $family.tuned/tokenizer.json || fail "$family: the second training saves another tokenizer"
    expect 0 '' merge --model $family --adapter $family.more --output_dir $family.more_merged
    # Whole tables; the model without an adapter.
    expect 0 '' train "${one[@]}" --save_strategy no --lora_modules_to_save embed_tokens lm_head --output_dir $family.whole
    expect 0 '' merge --model $family --adapter $family.whole --output_dir $family.whole_merged
    expect 0 '' train "${run[@]}" --model_name_or_path $family "${new[@]}" --use_peft false --resize_to_multiple_of 512 --output_dir $family.full
    grep -q '"vocab_size": 512' $family.full/config.json || fail "$family: a model of other rows"
    cmp -s $family.full/tokenizer.json $family.tuned/tokenizer.json || fail "$family: the model's tokenizer"
    want=$(loss_of --model_name_or_path $family.full)
    [ -n "$want" ] || fail "$family: no loss of the model"
done
# Of one table the same rows are the head's; of two both have their own.
! "$trimtab" inspect qwen2.tuned --tensors | grep -q lm_head || fail "one table is saved twice"
expect 0 'lm_head.token_adapter.trainable_tokens_delta [3, 40]' inspect llama2.tuned --tensors
expect 0 '' train "${run[@]}" --model_name_or_path llama2 "${new[@]}" --lora_modules_to_save lm_head --output_dir trl
expect 0 'embed_tokens.token_adapter.trainable_tokens_delta [3, 40]' inspect trl --tensors
# Texts with commas; a token that is there already needs no row.
expect 0 'of 3 tokens of add_tokens and add_special_tokens are new' train "${run[@]}" --model_name_or_path qwen2 --add_tokens '<ask>, <sum>' \
    --add_special_tokens '</s>' --max_steps 1 --output_dir commas
# A plan counts the rows.
plan=(plan --model_name_or_path qwen2 --sequence_length 64 --per_device_train_batch_size 1)
expect 0 '' "${plan[@]}"
cp printed before
expect 0 '' "${plan[@]}" "${new[@]}" --resize_to_multiple_of 1024
! cmp -s printed before || fail "a plan with new tokens is the one without"
# What is refused.
expect 2 'adapter_name_or_path names one that is there' \
    train "${run[@]}" --model_name_or_path qwen2 --adapter_name_or_path qwen2.tuned "${new[@]}" --output_dir no
expect 2 "the new token '<ask>' is listed twice" train "${run[@]}" --model_name_or_path qwen2 --add_tokens '<ask>' '<ask>' --output_dir no
expect 2 'a new token has no text' train "${run[@]}" --model_name_or_path qwen2 --add_tokens '["<ask>", ""]' --output_dir no
expect 2 'add_tokens has an entry that is no text' train "${run[@]}" --model_name_or_path qwen2 --add_tokens '["<ask>", 3]' --output_dir no
expect 2 'the adapter has a tokenizer with tokens of its own' \
    export gguf --model llama2 --adapter trl --output_file no.gguf
# Recipes of other trainers.
printf 'base_model: qwen2\ntokens: ["<ask>"]\nresize_token_embeddings_to_32x: true\ndatasets:\n  - path: rows.jsonl\n    type: completion\n' >axolotl.yaml
expect 0 'add_tokens' convert-config axolotl.yaml
finish
