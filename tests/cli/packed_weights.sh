#!/bin/bash
# cpu_panels: a generation of many prompts packs the weights once. The same tokens with and without, over ranks, with an
# adapter and with a quantized base; part of the plan, and left out where memory does not suffice.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
cp -r "$root/tests/golden/qwen2/model" model && cp "$root"/tests/support/tiny_tokenizer/* model/ && chmod -R u+w model
for i in $(seq 40); do echo "the sum $i + 1 ="; done >prompts.txt
number() { sed -nE "s/.*\"$1\": ([0-9]+).*/\1/p" "$2"; }

# 40 rows at a time: more than any processor multiplies without panels.
for bf16 in true false; do
    for panels in off auto; do
        "$trimtab" bench generate --config_json "$root/bench/shapes/tiny.json" --device cpu --threads 2 --bf16 $bf16 --prompt_tokens 6 \
            --new_tokens 9 --per_device_train_batch_size 40 --cpu_panels $panels >"$panels.json" 2>err || fail "bench: $(cat err)"
    done
    [ "$(number sum off.json)" = "$(number sum auto.json)" ] || fail "bf16 $bf16: other tokens"
    more=$(($(number device_peak_bytes auto.json) - $(number device_peak_bytes off.json)))
    [ $more -gt 0 ] || fail "bf16 $bf16: nothing is packed"
done
generate() { # OUT flags...
    "$trimtab" generate --model_name_or_path model --prompt_file prompts.txt --device cpu --threads 1 --max_new_tokens 6 --ignore_eos true \
        --per_device_eval_batch_size 40 "${@:2}" >"$1" 2>err || fail "generate ${*:2}: $(cat err)"
}
for i in $(seq 16); do echo "{\"prompt\": \"$i + 1 =\", \"completion\": \" $((i + 1))\"}"; done >train.jsonl
for steps in 2 4; do
    "$trimtab" train --model_name_or_path model --dataset_name train.jsonl --device cpu --threads 1 \
        --max_steps $steps --max_length 32 --per_device_train_batch_size 1 --learning_rate 0.05 --lora_target_modules all-linear \
        --output_dir adapter$steps --report_to none >out 2>&1 || fail "an adapter: $(tail -3 out)"
done
for more in '' '--ranks 2' '--adapter_name_or_path adapter2' '--adapter_name_or_path adapter2,adapter4' '--load_in_4bit true --bf16 false'; do
    # shellcheck disable=SC2086
    { generate off.jsonl --cpu_panels off $more; generate auto.jsonl $more; }
    [ -s off.jsonl ] && cmp -s off.jsonl auto.jsonl || fail "generate $more: other texts"
done

# The plan has the memory; a limit between the two plans leaves it out, and the generation runs.
plan=(plan --model_name_or_path model --device cpu --ranks 1 --generation_length 64 --per_device_eval_batch_size 40 --json)
"$trimtab" "${plan[@]}" >auto.json && "$trimtab" "${plan[@]}" --cpu_panels off >off.json || fail "plan"
packed=$(number packed_weights auto.json)
[ "${packed:-0}" -gt 0 ] && [ -z "$(number packed_weights off.json)" ] || fail "the plan: $(cat auto.json off.json)"
[ $(($(number device_bytes auto.json) - $(number device_bytes off.json))) -eq "$packed" ] || fail "the plan's sum"
limit=$(($(number device_bytes off.json) + packed / 2))
"$trimtab" "${plan[@]}" --device_memory $limit >limit.json || fail "a limit: $(cat limit.json)"
[ "$(number device_bytes limit.json)" = "$(number device_bytes off.json)" ] || fail "a limit leaves the panels in: $(cat limit.json)"
expect 2 "cpu_panels" "${plan[@]}" --cpu_panels often
finish
