#!/bin/bash
# Vision folders at the command line: what is served and left alone, images that are refused, adapters' targets, other
# formats of the text part.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
golden=$root/tests/golden/vision
gemma=$golden/gemma3/model
expect 0 "supported               the text part, 'model.language_model'" inspect "$gemma"
expect 0 "left alone              23 tensors of the vision tower and projector" inspect "$gemma"
expect 0 "hidden_size             24" inspect "$gemma"
expect 0 "left alone              22 tensors of the vision tower and connector" inspect "$golden/smolvlm/model"
# Refusals of a model_type name the page.
sed 's/"model_type": "gemma3"/"model_type": "gemma5"/' "$gemma/config.json" >unknown.json
expect 0 "models of model_type 'gemma5' are not supported" inspect unknown.json
expect 0 "docs/models.md lists all that are supported; the nearest name is 'gemma3'" inspect unknown.json
sed 's/"model_type": "gemma3_text"/"model_type": "gpt2"/' "$gemma/config.json" >other.json
expect 0 "models of model_type 'gpt2' are not supported as a text part" inspect other.json
# The published files of Gemma 3 leave out what their class has as a default.
sed '/"num_attention_heads"\|"head_dim"\|"num_key_value_heads"/d' "$gemma/config.json" |
    sed ':a;N;$!ba;s/,\n *"vocab_size": 67//' >short.json
expect 0 "supported               the text part" inspect short.json

# Mistral 3 is tied where nothing is said, as in transformers; some of its published folders have a head all the same.
sed '/^  "tie_word_embeddings"/d' "$golden/mistral3/model/config.json" >bare.json
head=(plan --device h200 --max_length 32 --config_json)
expect 0 "has no tie_word_embeddings, so that mistral3 is planned as tied: a head in the weights needs 6.3 KiB more" "${head[@]}" bare.json
sed 's/^    "tie_word_embeddings": false/    "tie_word_embeddings": true/' bare.json >inner.json
cmp -s bare.json inner.json && fail "inner.json is bare.json"
for said in "$golden/mistral3/model/config.json" inner.json; do
    expect 0 "weights shard" "${head[@]}" "$said"
    grep -q tie_word_embeddings printed err && fail "a warning of a head that $said names:" "$(cat err)"
done

# PEFT has a default of targets for folders of Gemma 4: q_proj and v_proj of the text model.
expect 0 "adapter masters" plan --model_name_or_path "$golden/gemma4/model" --device h200 --max_length 32

# Layers differ: the hint has the names of all.
expect 2 "in_proj_a, out_proj, gate_proj, up_proj, down_proj, q_proj, k_proj, v_proj, o_proj and lm_head" plan \
    --model_name_or_path "$golden/qwen3_5/model" --max_length 32 --lora_target_modules '["in_proj_qkvz"]'

# A quantized folder names the linears that the family leaves as they are, and is read again.
for kind in nf4 int8 fp8; do
    expect 0 "" quantize --model_name_or_path "$golden/qwen3_5/model" --output_dir quantized.$kind --to $kind
    "$trimtab" inspect quantized.$kind --tensors >said
    grep -q '^F32 .*in_proj_a.weight \[' said && ! grep -q '^F32 .*in_proj_z.weight \[' said || fail "$kind:" "$(grep in_proj said)"
    grep -q 'in_proj_b' quantized.$kind/config.json || fail "$kind: config.json does not name in_proj_b"
    expect 0 '"loss": ' eval --model_name_or_path quantized.$kind --eval_dataset "$golden/qwen3_5/train.jsonl" --bf16 false \
        --threads 1 --json
done

# Rows with images
model=(--model_name_or_path "$gemma")
echo '{"input_ids": [3, 4, 5], "labels": [3, 4, 5], "images": []}' >none.jsonl
expect 0 "" data "${model[@]}" --dataset_name none.jsonl
{ cat none.jsonl; echo '{"input_ids": [3, 4], "labels": [3, 4], "images": ["a.png"]}'; } >images.jsonl
expect 2 "'images.jsonl', row 2 (line 2): the row has 'images', and of this model the text part is served" \
    data "${model[@]}" --dataset_name images.jsonl
expect 0 "" data --model_name_or_path "$root/tests/golden/gemma3/model" --dataset_name images.jsonl
{ cat none.jsonl; echo '{"input_ids": [3, 4], "labels": [3, 4], "videos": ["a.mp4"]}'; } >videos.jsonl
expect 2 "row 2 (line 2): the row has 'videos'" data "${model[@]}" --dataset_name videos.jsonl
echo '{"input_ids": [3, 4, 5], "labels": [3, 4, 5], "image": ""}' >blank.jsonl
expect 0 "" data "${model[@]}" --dataset_name blank.jsonl
echo '{"messages": [{"role": "user", "content": [{"type": "image"}]}]}' >part.jsonl
expect 2 "or these parts of them: of a model that sees or hears the text part is served" \
    data --dataset_name part.jsonl --model_name_or_path "$root/examples/demo/model"

# Prompts with images
cp -r "$gemma" seeing && cp "$root/tests/support/tiny_tokenizer/tokenizer_config.json" seeing/ &&
    sed -E '/^"[^"]*": (6[7-9]|[7-9][0-9]|[0-9]{3}),?$/d; s/": 66,$/": 66/' \
        "$root/tests/support/tiny_tokenizer/tokenizer.json" >seeing/tokenizer.json
echo '{{ messages[0]["content"] }}' >template.jinja
printf '{"prompt": "1", "images": []}\n\n{"prompt": "2", "images": ["a.png"]}\n' >prompts.jsonl
printf '{"messages": [{"role": "user", "content": "1"}], "image": "a.png"}\n' >asked.jsonl
asks=(generate --bf16 false --threads 1 --max_new_tokens 2 --model_name_or_path)
expect 2 "prompts.jsonl line 3: the row has 'images', and of this model the text part is served" \
    "${asks[@]}" seeing --prompt_file prompts.jsonl
expect 2 "conversation 1: the row has 'image', and of this model the text part is served" \
    "${asks[@]}" seeing --messages asked.jsonl --chat_template_path template.jinja
head -1 prompts.jsonl >unseen.jsonl
expect 0 "completion" "${asks[@]}" seeing --prompt_file unseen.jsonl --json

# Training: the line at the start, the targets of the adapter
run=(--bf16 false --threads 1 --report_to none --max_steps 2 --per_device_train_batch_size 2 --save_strategy no)
expect 0 "23 tensors of the vision tower and projector are left alone" train "${model[@]}" \
    --dataset_name "$golden/gemma3/train.jsonl" --output_dir adapter "${run[@]}"
cat printed err | grep -q '^adapted: q_proj 1,536, v_proj 1,152$' || fail "kinds:" "$(grep adapted printed err)"
grep -qF '"target_modules": "model\\.language_model\\.layers\\.\\d+\\.(self_attn\\.q_proj|self_attn\\.v_proj)"' \
    adapter/adapter_config.json || fail "the targets are" "$(grep target adapter/adapter_config.json)"
expect 0 "" train "${model[@]}" --dataset_name "$golden/gemma3/train.jsonl" --output_dir one "${run[@]}" \
    --lora_target_modules '["q_proj"]' --layers_to_transform '[1]'
grep -qF '"target_modules": "model\\.language_model\\.layers\\.1\\.self_attn\\.q_proj"' one/adapter_config.json ||
    fail "the target is" "$(grep target one/adapter_config.json)"
grep -q '"layers_to_transform": null' one/adapter_config.json || fail "layers_to_transform is not null"
# Patterns and modules that are spelled for the text model alone are written for the class.
expect 0 "" train "${model[@]}" --dataset_name "$golden/gemma3/train.jsonl" --output_dir spelled "${run[@]}" \
    --alpha_pattern '{"model.layers.0.self_attn.q_proj": 64}' --rank_pattern '{"model.layers.1.self_attn.v_proj": 2}' \
    --lora_modules_to_save '["model.norm"]'
for word in '"model.language_model.layers.0.self_attn.q_proj": 64' '"model.language_model.layers.1.self_attn.v_proj": 2' \
    '"model.language_model.norm"'; do
    grep -qF "$word" spelled/adapter_config.json || fail "no $word in" "$(cat spelled/adapter_config.json)"
done
expect 0 '"loss": ' eval --eval_dataset "$golden/gemma3/train.jsonl" --bf16 false --threads 1 --json "${model[@]}" \
    --adapter_name_or_path spelled
# The adapter that it wrote, and one over the text model alone, are read again.
loss() { "$trimtab" eval --eval_dataset "$golden/gemma3/train.jsonl" --bf16 false --threads 1 --json "$@" 2>err |
    sed -n 's/^{"loss": \([0-9.]*\),.*/\1/p'; }
plain=$(loss "${model[@]}") tuned=$(loss "${model[@]}" --adapter_name_or_path adapter)
[ -n "$plain" ] && [ -n "$tuned" ] && [ "$plain" != "$tuned" ] || fail "losses '$plain' and '$tuned'" "$(cat err)"
expect 0 "" plan "${model[@]}" --max_length 32

# Other formats: the tower stays as it is, and config.json says so.
for to in nf4 fp8; do
    expect 0 "" quantize "${model[@]}" --output_dir $to --to $to
    grep -q 'vision_tower' $to/config.json || fail "$to/config.json does not list the tower"
    "$trimtab" inspect $to --tensors >printed
    grep -q '^F32 .*vision_tower.*q_proj.weight' printed || fail "$to: no vision_tower in F32"
    expect 0 "" train --model_name_or_path $to --dataset_name "$golden/gemma3/train.jsonl" --output_dir over_$to "${run[@]}"
    near=$(loss --model_name_or_path $to)
    awk -v a="$near" -v b="$plain" 'BEGIN {exit !(a > 0.9 * b && a < 1.1 * b)}' || fail "$to: loss $near, plain $plain"
done
# A tower that is quantized too needs the quantization_config that a merge drops.
if command -v python3 >/dev/null; then
    cp -r nf4 both
    python3 - both/model.safetensors <<'END'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
size = struct.unpack("<Q", data[:8])[0]
header, values = json.loads(data[8:8 + size]), data[8 + size:]
text, tower = "language_model.model.layers.0.self_attn.q_proj.weight", "vision_tower.encoder.layers.0.self_attn.q_proj.weight"
del header[tower]
out, kept = {"__metadata__": header.pop("__metadata__", {})}, b""
for name, entry in list(header.items()):
    names = [name] + ([tower + name[len(text):]] if name.startswith(text) else [])
    for new in names:
        begin, end = entry["data_offsets"]
        out[new] = dict(entry, data_offsets=[len(kept), len(kept) + end - begin])
        kept += values[begin:end]
packed = json.dumps(out).encode()
packed += b" " * (-len(packed) % 8)
open(sys.argv[1], "wb").write(struct.pack("<Q", len(packed)) + packed + kept)
END
    expect 2 "'model.vision_tower.encoder.layers.0.self_attn.q_proj.weight' is quantized too, and a merge writes only the text model" \
        merge --model_name_or_path both --adapter_name_or_path "$golden/gemma3/adapter_random" --output_dir merged_both
    [ ! -e merged_both ] || fail "a merge that is refused leaves a folder"
fi
# The list of an older version names modules as it spelled them: a layer that it leaves out is plain.
"$trimtab" quantize --model_name_or_path "$gemma" --output_dir some \
    --llm_int8_skip_modules '["model.language_model.layers.1"]' >printed 2>err || fail "quantize" "$(cat err)"
sed -i 's/"model.language_model.layers.1"/"language_model.model.layers.1"/' some/config.json
grep -q '"language_model.model.layers.1"' some/config.json || fail "the list is" "$(cat some/config.json)"
expect 0 "" eval --model_name_or_path some --eval_dataset "$golden/gemma3/train.jsonl" --bf16 false --threads 1
# Published folders of Gemma 4 may have keys and values of layers that read those of others.
if command -v python3 >/dev/null; then
    cp -r "$root/tests/golden/dense/gemma4_e/model" unused && chmod -R u+w unused
    python3 - unused/model.safetensors <<'END'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
size = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8:8 + size])
entry = header["model.layers.0.self_attn.k_norm.weight"]
values = data[8 + size:]
for name in ("k_norm", "k_proj", "v_proj"):
    header[f"model.layers.3.self_attn.{name}.weight"] = dict(entry, data_offsets=[len(values), len(values) + 16])
    values += bytes(16)
packed = json.dumps(header).encode()
packed += b" " * (-len(packed) % 8)
open(sys.argv[1], "wb").write(struct.pack("<Q", len(packed)) + packed + values)
END
    expect 0 '"loss": ' eval --model_name_or_path unused --eval_dataset "$root/tests/golden/dense/train.jsonl" \
        --bf16 false --threads 1 --json
    sed -i 's/"num_kv_shared_layers": 3/"num_kv_shared_layers": 1/' unused/config.json
    expect 3 "'model.layers.2.self_attn.k_norm.weight'" eval --model_name_or_path unused --bf16 false \
        --eval_dataset "$root/tests/golden/dense/train.jsonl" --threads 1 --json
fi
# GGUF has the text model alone.
mkdir tokenizer && cp "$root/tests/support/tiny_tokenizer/tokenizer_config.json" tokenizer/
sed -E '/^"[^"]*": (6[7-9]|[7-9][0-9]|[0-9]{3}),?$/d; s/": 66,$/": 66/' \
    "$root/tests/support/tiny_tokenizer/tokenizer.json" >tokenizer/tokenizer.json # the ids that the models have
cp -r "$golden/mistral3/model" plain && cp tokenizer/* plain/
expect 0 "" export gguf --model_name_or_path plain --adapter_name_or_path "$golden/mistral3/adapter_random" \
    --output_file text.gguf
grep -aq 'blk.1.attn_q.weight' text.gguf || fail "text.gguf has no layers"
grep -aq 'vision_tower' text.gguf && fail "text.gguf has the tower"
for class in qwen2_5_vl qwen3_vl smolvlm; do
    rm -r plain && cp -r "$golden/$class/model" plain && cp tokenizer/* plain/
    expect 0 "" export gguf --model_name_or_path plain --output_file $class.gguf
    grep -aq 'blk.1.attn_q.weight' $class.gguf || fail "$class.gguf has no layers"
done
# An array (9) of 4 numbers (i32: 5) behind the key: 2, 2, 2, 0.
sections=$(printf '\x09\0\0\0\x05\0\0\0\x04\0\0\0\0\0\0\0\x02\0\0\0\x02\0\0\0\x02\0\0\0\0\0\0\0' | od -An -v -tx1 | tr -d ' \n')
for class in qwen2vl qwen3vl; do
    file=qwen2_5_vl.gguf
    [ $class = qwen3vl ] && file=qwen3_vl.gguf
    key=$(printf '%s.rope.dimension_sections' $class | od -An -v -tx1 | tr -d ' \n')
    od -An -v -tx1 $file | tr -d ' \n' | grep -q "$key$sections" || fail "$file: no sections"
done
grep -aq 'qwen3vl.n_deepstack_layers' qwen3_vl.gguf || fail "qwen3_vl.gguf has no n_deepstack_layers"
expect 0 "" train "${model[@]}" --dataset_name "$golden/gemma3/train.jsonl" --output_dir qlora "${run[@]}" --load_in_4bit true
# Generation with a cache, which serve has too.
for class in gemma3 gemma4 mistral3 qwen2_5_vl qwen3_vl qwen3_5 qwen3_5_moe lfm2_vl smolvlm muse_glimmer; do
    rm -rf plain && cp -r "$golden/$class/model" plain && cp tokenizer/* plain/
    expect 0 "" generate --model_name_or_path plain --bf16 false --threads 1 --prompt "12" --max_new_tokens 4
    [ -s printed ] || fail "$class: nothing is generated"
done
finish
