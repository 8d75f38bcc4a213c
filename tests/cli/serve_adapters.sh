#!/usr/bin/env bash
# Adapters that are loaded and unloaded while a server runs: they answer as alone, over ranks too, and what has no place, or is
# no adapter, is refused.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
cp -r "$root/tests/golden/llama3/model" model && cp "$root"/tests/support/tiny_tokenizer/* model/ && chmod -R u+w model
expect 2 "is no address to listen at" serve --model_name_or_path model --host nowhere.example >/dev/null
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
for i in $(seq 24); do echo "{\"prompt\": \"$i + 1 =\", \"completion\": \" $((i + 1))\"}"; done >train.jsonl
# make NAME flags...: an adapter.
make() {
    "$trimtab" train --model_name_or_path model --dataset_name train.jsonl --max_steps 6 --learning_rate 0.03 --report_to none \
        --save_strategy no --output_dir "$@" >printed 2>err || fail "train $*: $(tail -3 err)"
}
make small --lora_r 4 --lora_alpha 8 --target_modules all-linear --seed 1
make wide --lora_r 12 --lora_alpha 48 --target_modules q_proj,v_proj --use_rslora true --seed 2
make large --lora_r 13 --target_modules q_proj --seed 3
make dora --lora_r 4 --use_dora true --lora_dropout 0 --seed 4
make tokens --lora_r 4 --trainable_token_indices '[9]' --lora_dropout 0 --seed 6
make saved --lora_r 4 --modules_to_save lm_head --seed 5
cp -r small renamed && cp -r small infinite && cp -r small huge && cp -r small garbage && cp -r small other
printf '{"peft_type": "PREFIX_TUNING"}' >garbage/adapter_config.json
python3 - <<'END' || fail "making what is refused"
import json, struct
data = open("small/adapter_model.safetensors", "rb").read()
open("renamed/adapter_model.safetensors", "wb").write(data.replace(b"layers.1.self_attn.q_proj", b"layers.7.self_attn.q_proj"))
open("infinite/adapter_model.safetensors", "wb").write(data[:-4] + struct.pack("<f", float("inf")))
open("huge/adapter_model.safetensors", "wb").write(data[:-4] + struct.pack("<f", 3e38))  # twice that: alpha 8 of rank 4
size, = struct.unpack("<Q", data[:8])
header = json.loads(data[8:8 + size])
for entry in header.values():
    if "shape" in entry:
        entry["shape"] = entry["shape"][::-1]
text = json.dumps(header).encode()
open("other/adapter_model.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + data[8 + size:])
END
printf '%s\n' 'a b c' '12 + 1 =' 'xyz' >prompts.txt
for name in small wide None; do
    adapter=(--adapter_name_or_path "$name")
    [ $name = None ] && adapter=()
    "$trimtab" generate --model_name_or_path model --bf16 false --max_new_tokens 10 "${adapter[@]}" --prompt_file prompts.txt >printed 2>err ||
        fail "$name alone: $(cat err)"
    python3 -c 'import json; print(json.dumps([json.loads(line)["completion"] for line in open("printed")]))' >alone-$name.json
done
cmp -s alone-small.json alone-wide.json && fail "adapters say the same, which proves nothing"
cmp -s alone-small.json alone-None.json && fail "an adapter says what the base says, which proves nothing"
python3 "$root/tests/tools/serve_adapters.py" "$trimtab" model -- || fail "serve_adapters.py"
for ranks in '--ranks 2' '--ranks 2 --sharding_strategy FULL_SHARD'; do
    python3 "$root/tests/tools/serve_adapters.py" "$trimtab" model -- $ranks || fail "serve_adapters.py $ranks"
done
expect 2 'max_loras 1 is less than the 2 adapters' serve --model_name_or_path model --adapter_name_or_path small,wide --max_loras 1
expect 2 'not supported with offload_params' serve --model_name_or_path model --max_loras 2 --offload_params true
# Places are part of the plan, which a limit of memory refuses.
expect 4 'this run needs 4.5 GiB a rank' serve --model_name_or_path model --max_loras 200 --max_lora_rank 4096 --context_length 16 --device_memory 64MiB
finish
