#!/bin/bash
# merge and export on the command line: output, files, refusals.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
golden=$root/tests/golden

cp -r "$golden/qwen2/model" base && cp "$golden"/../support/tiny_tokenizer/* base/ || exit 1
echo "a card" >base/README.md
touch base/pytorch_model.bin
random=$golden/qwen2/adapter_random variety=$golden/qwen2/variety

expect 0 "14 of 26 tensors changed" merge --model_name_or_path base --adapter_name_or_path "$random" --output_dir merged
for file in config.json generation_config.json tokenizer.json tokenizer_config.json README.md; do
    cmp base/$file merged/$file || fail "$file is not copied"
done
[ -e merged/pytorch_model.bin ] && fail "other weights were copied"
[ -e merged/model.safetensors.index.json ] && fail "an index of one file"
expect 0 '"rounding": 0.00' merge --model base --adapter "$random" --output_dir half --save_dtype bfloat16 --json
grep -q '"dtype": "bfloat16"' half/config.json || fail "config.json does not say the type"
expect 0 "in 4 files" merge --model base --adapter "$random" --output_dir shards --max_shard_size 100KB
expect 0 "supported               yes" inspect shards
expect 0 "tie_word_embeddings false" merge --model base --adapter "$variety" --output_dir untied
grep -q '"tie_word_embeddings": false' untied/config.json || fail "config.json still ties"
expect 0 "lm_head.weight" inspect untied --tensors

# An adapter that has hardly trained drowns in the rounding of a base in bf16, and one in fp32 does not.
demo=$root/examples/demo
"$trimtab" train --model_name_or_path "$demo/model" --dataset_name "$demo/data/train.jsonl" --output_dir slight --max_steps 1 \
    --learning_rate 1e-6 --report_to none >said 2>&1 || fail "no slight adapter:" "$(tail -n 3 said)"
expect 0 "warning: rounding takes a large part of what was trained" merge --model "$demo/model" --adapter slight --output_dir drowned
expect 0 "10 of 47 tensors changed" merge --model "$demo/model" --adapter slight --output_dir whole --save_dtype float32
grep -q 'rounding takes' printed err && fail "a merge in float32 warns of rounding"

# Chat templates, card and end tokens go with the model; a template beside the adapter replaces the base's.
cp -r base chat && cp -r "$random" tuned && chmod -R u+w chat tuned && mkdir chat/additional_chat_templates || exit 1
echo "base of messages" >chat/chat_template.jinja
echo "tools of the base" >chat/additional_chat_templates/tool_use.jinja
echo '{"eos_token_id": [2, 7]}' >chat/generation_config.json
printf -- '---\nname: The Base\nlicense: apache-2.0\nlanguage: [en]\n---\n' >chat/README.md
expect 0 "14 of 26 tensors changed" merge --model chat --adapter tuned --output_dir talks
for file in chat_template.jinja additional_chat_templates/tool_use.jinja generation_config.json README.md; do
    cmp chat/$file talks/$file || fail "$file is not copied"
done
holds() { for text in "${@:2}"; do grep -qaF -- "$text" "$1" || fail "$1 has no '$text'"; done; }
expect 0 "26 tensors" export gguf --model chat --output_file chat.gguf
holds chat.gguf "The Base" apache-2.0 general.languages "base of messages" tokenizer.chat_template.tool_use "tools of the base" \
    tokenizer.ggml.eot_token_id
echo "what the adapter learned" >tuned/chat_template.jinja
printf -- '---\nname: The Tuned\nbase_model: org/base-7B-v2\n---\n' >tuned/README.md
expect 0 "14 of 26 tensors changed" merge --model chat --adapter tuned --output_dir talks --overwrite_output_dir
cmp tuned/chat_template.jinja talks/chat_template.jinja || fail "the adapter's template is not the merged model's"
[ -e talks/additional_chat_templates ] && fail "a template of the base stays beside the adapter's"
expect 0 "26 tensors" export gguf --model chat --adapter tuned --output_file tuned.gguf
holds tuned.gguf "The Tuned" "Base 7B v2" apache-2.0 "what the adapter learned"
grep -qaF -e "The Base" -e "base of messages" tuned.gguf && fail "the base's name or template in the file of both"
expect 0 "LoRA adapter" export gguf --model chat --adapter tuned --adapter_only --output_file tuned_lora.gguf
holds tuned_lora.gguf "The Tuned"
grep -qaF apache-2.0 tuned_lora.gguf && fail "the base's license in an adapter's file"
printf -- '---\nname: [\n---\n' >chat/README.md
expect 0 "the model card is ignored" export gguf --model chat --output_file chat.gguf --overwrite
ln -sf /etc/hostname tuned/chat_template.jinja
expect 3 "chat_template.jinja" merge --model chat --adapter tuned --output_dir linked
[ -e linked ] && fail "a merged folder with a file from elsewhere"

# A quantized base becomes plain: the loss of the merged model is that of base and adapter.
for i in $(seq 8); do echo "{\"prompt\": \"$i + 1 =\", \"completion\": \" $((i + 1))\"}"; done >test.jsonl
loss() { "$trimtab" eval --eval_dataset test.jsonl --bf16 false "$@" 2>/dev/null | grep '^loss'; }
for format in "--bnb_4bit_use_double_quant" "--bnb_4bit_quant_type fp4" "--load_in_8bit" "--to fp8"; do
    rm -rf quantized plain
    # shellcheck disable=SC2086
    "$trimtab" quantize --model_name_or_path base --output_dir quantized $format >/dev/null 2>&1 || fail "quantize $format"
    expect 0 "14 of 26 tensors changed" merge --model quantized --adapter "$random" --output_dir plain
    grep -q quantization_config plain/config.json && fail "config.json still says that it is quantized"
    apart=$(loss --model_name_or_path quantized --adapter_name_or_path "$random" --fp8_products none)
    [ -n "$apart" ] && [ "$apart" = "$(loss --model_name_or_path plain)" ] || fail "$format: not the loss of base and adapter"
    # GGUF blocks are made of the values before any rounding: those of the base and its adapter merged in float32.
    rm -rf plain && mkdir plain
    expect 0 "14 of 26 tensors changed" merge --model quantized --adapter "$random" --output_dir plain/quantized --save_dtype float32
    expect 0 "matrices q4_k_m" export gguf --model quantized --adapter "$random" --output_file apart.gguf --outtype q4_k_m --overwrite
    expect 0 "matrices q4_k_m" export gguf --model plain/quantized --output_file whole.gguf --outtype q4_k_m --overwrite
    cmp apart.gguf whole.gguf || fail "$format: other blocks than those of the merged model"
done

# A base in FP8 merges into its numbers, also where training quantizes them by rows anew.
for kind in channel blocks; do
    rm -rf adapter8 plain
    fp8=$root/tests/golden/fp8
    "$trimtab" train --model_name_or_path "$fp8/$kind" --dataset_name "$fp8/train.jsonl" --output_dir adapter8 --use_peft true --max_steps 3 \
        --learning_rate 0.01 --lora_r 4 --lora_target_modules all-linear --save_strategy no >/dev/null 2>&1 || fail "training over $kind"
    expect 0 "tensors changed" merge --model "$fp8/$kind" --adapter adapter8 --output_dir plain
    grep -q quantization_config plain/config.json && fail "config.json of $kind still says that it is quantized"
    apart=$("$trimtab" eval --model_name_or_path "$fp8/$kind" --adapter_name_or_path adapter8 --eval_dataset "$fp8/train.jsonl" \
        --fp8_products none 2>/dev/null | awk '/^loss/ {print $2}')
    plain=$("$trimtab" eval --model_name_or_path plain --eval_dataset "$fp8/train.jsonl" 2>/dev/null | awk '/^loss/ {print $2}')
    awk -v a="$apart" -v b="$plain" 'BEGIN {d = (a - b) / a; exit !(a > 1 && d < 0.03 && d > -0.03)}' || fail "$kind: $apart and $plain"
done

expect 2 "is not empty" merge --model base --adapter "$random" --output_dir merged
expect 0 "tensors changed" merge --model base --adapter "$random" --output_dir merged --overwrite_output_dir
expect 2 "is an input folder" merge --model base --adapter "$random" --output_dir base/. --overwrite_output_dir
expect 2 "is missing" merge --model base --output_dir x
expect 3 "the model folder 'nowhere' does not exist" merge --model nowhere --adapter "$random" --output_dir x
expect 3 "the adapter folder 'nowhere' does not exist" merge --model base --adapter nowhere --output_dir x
expect 3 "is not an adapter" merge --model base --adapter base --output_dir x
expect 3 "the folder contains an adapter: name the folder of the base model" merge --model "$random" --adapter "$random" --output_dir x
expect 3 "'model.layers.0.self_attn.q_proj.lora_A.weight'" merge --model base --adapter "$golden/qwen3/adapter_random" --output_dir x
expect 2 "takes one of" merge --model base --adapter "$random" --output_dir x --save_dtype int8

export_() { expect "$1" "$2" export gguf --model base "${@:3}"; }
export_ 0 "architecture 'qwen2', 26 tensors, matrices float32" --output_file base.gguf
export_ 0 "matrices float16" --output_file merged.gguf --adapter "$random" --outtype f16
export_ 0 "LoRA adapter of architecture 'qwen2', 28 tensors" --output_file lora.gguf --adapter "$random" --adapter_only
for file in base merged lora; do [ "$(head -c 4 $file.gguf)" = GGUF ] || fail "$file.gguf is none"; done
export_ 2 "exists" --output_file base.gguf
# No room on the disk: unfinished files are removed.
if (trap '' XFSZ && ulimit -f 8 && "$trimtab" export gguf --model base --output_file full.gguf) >printed 2>err; then
    fail "a file beyond the limit"
fi
grep -q "cannot reserve .* 'full.gguf.exporting'" err || fail "no room:" "$(cat err)"
compgen -G 'full.gguf*' && fail "a failed export leaves a file"
export_ 0 "26 tensors" --output_file base.gguf --overwrite
export_ 2 "needs an adapter" --output_file x --adapter_only
export_ 2 "an adapter alone is not quantized to q4_k_m" --output_file x --adapter "$random" --adapter_only --outtype Q4_K
grep -q "hint: write it as f32, f16, bf16 or q8_0, or merge it" err || fail "no hint: $(cat err)"
export_ 0 "28 tensors, matrices q8_0" --output_file lora8.gguf --adapter "$random" --adapter_only --outtype q8_0
export_ 0 "26 tensors, matrices q5_k_m" --output_file quantized.gguf --adapter "$random" --outtype q5_k_m
export_ 2 "modules_to_save in an adapter: 'model.embed_tokens.weight'" --output_file x --adapter "$variety" --adapter_only
export_ 0 "27 tensors" --output_file untied.gguf --adapter "$variety"
export_ 2 "is a folder" --output_file base
expect 3 "has no tokenizer.json" export gguf --model "$golden/qwen2/model" --output_file x
expect 2 "there is no format 'onnx'" export onnx
expect 2 "needs a format" export
[ -e x ] && fail "something after an error"
find . -name '*.merging' -o -name '*.exporting' | grep -q . && fail "something unfinished is left"
finish
