#!/usr/bin/env bash
# Several adapters over one base: each answers as it does when it is alone, in one batch with the others and with the
# base, whatever their ranks, targets and scales; over ranks, quantized bases, in a conversation and of a server.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
if ! command -v python3 >/dev/null; then
    echo "skipped: all of it: no python3"
    exit 77
fi
cp -r "$root/tests/golden/llama3/model" model && cp "$root"/tests/support/tiny_tokenizer/* model/ && chmod -R u+w model
cat >model/chat_template.jinja <<'END'
{% for m in messages %}{{ '<' + m.role + '> ' + m.content + '</s>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<assistant> ' }}{% endif %}
END
for i in $(seq 24); do echo "{\"prompt\": \"$i + 1 =\", \"completion\": \" $((i + 1))\"}"; done >train.jsonl
# make NAME flags...: an adapter.
make() {
    "$trimtab" train --model_name_or_path model --dataset_name train.jsonl --max_steps 6 --learning_rate 0.03 --report_to none \
        --save_strategy no --output_dir "$@" >printed 2>err || fail "train $*: $(tail -3 err)"
}
make small --lora_r 4 --lora_alpha 8 --target_modules all-linear --seed 1
make wide --lora_r 12 --lora_alpha 36 --target_modules q_proj,v_proj --seed 2
make deep/last --lora_r 8 --lora_alpha 16 --target_modules down_proj,lm_head --use_rslora true --seed 3
names=(small wide last)
folders=(small wide deep/last)
all=small,wide,deep/last/
printf '%s\n' 'a b c' '12 + 1 =' 'xyz' >prompts.txt
settings=(--model_name_or_path model --max_new_tokens 10)
python3 - <<'END'
import json
with open("mixed.jsonl", "w") as file:
    for text in open("prompts.txt").read().splitlines():
        for name in ("wide", None, "small", "last"): print(json.dumps({"prompt": text, "adapter": name}), file=file)
END
# alone FLAGS...: what each adapter and the base say alone, as alone-NAME.jsonl.
alone() {
    local i
    for i in 0 1 2; do
        "$trimtab" generate "${settings[@]}" "$@" --adapter_name_or_path "${folders[i]}" --prompt_file prompts.txt \
            >"alone-${names[i]}.jsonl" 2>err || fail "${names[i]} alone: $(cat err)"
    done
    "$trimtab" generate "${settings[@]}" "$@" --prompt_file prompts.txt >alone-None.jsonl 2>err || fail "the base: $(cat err)"
    cmp -s alone-small.jsonl alone-wide.jsonl && fail "adapters say the same, which proves nothing"
    cmp -s alone-last.jsonl alone-None.jsonl && fail "an adapter says what the base says, which proves nothing"
}
# together FLAGS...: the same in one batch.
together() {
    "$trimtab" generate "${settings[@]}" "$@" --adapter_name_or_path "$all" --prompt_file mixed.jsonl >printed 2>err ||
        fail "together $*: $(cat err)"
    python3 - <<'END' || fail "together $*: another answer than alone"
import json
alone = {name: [json.loads(line)["completion"] for line in open(f"alone-{name}.jsonl")] for name in ("small", "wide", "last", "None")}
rows = [json.loads(line) for line in open("printed")]
asked = [json.loads(line) for line in open("mixed.jsonl")]
assert len(rows) == 12, rows
for i, (row, ask) in enumerate(zip(rows, asked)):
    assert row["adapter"] == ask["adapter"], row
    assert row["completion"] == alone[str(ask["adapter"])][i // 4], (row, alone[str(ask["adapter"])][i // 4])
END
}
alone --bf16 false
together --bf16 false
together --bf16 false --batch_size 2
together --bf16 false --ranks 2
together --bf16 false --ranks 2 --sharding_strategy FULL_SHARD
together --bf16 false --stats
[ "$(awk '/^  in all/ && NF == 6 { print $3 $4 == $5 $6 }' err)" = 1 ] || fail "planned and used differ:" "$(cat err)"
# Eight prompts at a time, then four: each step has one pass, whatever adapters its rows have. A processor
# records nothing.
"$trimtab" generate "${settings[@]}" --bf16 false --stats --ignore_eos --adapter_name_or_path "$all" --prompt_file mixed.jsonl \
    >printed 2>err || fail "without ends: $(cat err)"
grep -qx '20 passes of rank 0, 0 of them launched as recorded work' err || fail "passes:" "$(cat err)"
grep -qE '^at most 8 prompts at a time on a rank$' err || fail "prompts at a time:" "$(cat err)"
alone --bf16 false --load_in_4bit true
together --bf16 false --load_in_4bit true

# Without a name the first adapter answers. One adapter alone: lines have no key of it.
"$trimtab" generate "${settings[@]}" --bf16 false --adapter_name_or_path "$all" --prompt xyz --json >printed 2>err
grep -q '"adapter": "small"' printed || fail "without a name:" "$(cat printed err)"
"$trimtab" generate "${settings[@]}" --adapter_name_or_path small --prompt xyz --json >printed 2>err
grep -q adapter printed && fail "one adapter is named:" "$(cat printed)"

alone --bf16 false
for name in small wide last None; do
    python3 -c 'import json, sys; print(json.loads(open(sys.argv[1]).readline())["completion"])' alone-$name.jsonl
done >/dev/null
printf '%s\n' abc '/reset' '/adapter wide' abc '/reset' '/adapter off' abc '/reset' '/adapter last' abc '/adapter' '/adapter nobody' abc |
    "$trimtab" chat "${settings[@]}" --bf16 false --adapter_name_or_path "$all" >printed 2>err && fail "chat: an unknown name"
for name in small wide '' deep/last; do
    "$trimtab" generate "${settings[@]}" --bf16 false ${name:+--adapter_name_or_path "$name"} \
        --messages '[{"role": "user", "content": "abc"}]' 2>/dev/null
done >wanted
cmp wanted printed || fail "chat: another answer than alone:" "$(cat wanted printed)"
[ "$(grep -c 'the adapter is on: last; there are small, wide, last' err)" -eq 3 ] || fail "chat lists no adapters:" "$(cat err)"
grep -q '^error: .*/adapter and the name of one' err || fail "chat: an unknown name:" "$(cat err)"

if "$trimtab" serve --help >/dev/null 2>&1 && command -v curl >/dev/null; then
    "$trimtab" serve "${settings[@]}" --bf16 false --adapter_name_or_path "$all" --port 0 >served 2>serve_err &
    server=$!
    for _ in {1..300}; do grep -q 'http://' served serve_err && break; kill -0 $server || break; sleep 0.1; done
    address=$(cat served serve_err | grep -o 'http://[^ ]*/v1' | head -1)
    if [ -n "$address" ]; then
        curl -s "$address/models" | grep -o '"id": *"[a-z]*"' | grep -o '[a-z]*"$' | tr -d '"\n' >listed
        [ "$(cat listed)" = modelsmallwidelast ] || fail "models: $(cat listed)"
        asked=()
        for name in wide small model last; do
            curl -s "$address/completions" -H 'Content-Type: application/json' \
                -d "{\"model\": \"$name\", \"prompt\": \"xyz\", \"max_tokens\": 10}" >answer-$name &
            asked+=($!)
        done
        wait "${asked[@]}"
        for name in wide small model last; do
            python3 - $name <<'END' || fail "served: another answer of $name than alone: $(cat answer-$name)"
import json, sys
name = sys.argv[1]
answer = json.load(open(f"answer-{name}"))
wanted = json.loads(open(f"alone-{name if name != 'model' else None}.jsonl").readlines()[2])["completion"]
assert answer["choices"][0]["text"] == wanted and answer["model"] == name, (answer, wanted)
END
        done
        curl -s "$address/completions" -H 'Content-Type: application/json' -d '{"model": "nobody", "prompt": "a"}' | grep -q model_not_found ||
            fail "an unknown model is accepted"
        kill -TERM $server
        wait $server || fail "the server ends with $?: $(cat serve_err)"
    else
        kill $server 2>/dev/null
        echo "skipped: the server: $(tail -1 serve_err)"
    fi
else
    echo "skipped: the server: no curl"
fi

echo '{"prompt": "a", "adapter": "nobody"}' >nobody.jsonl
expect 2 "names the adapter 'nobody'" generate "${settings[@]}" --adapter_name_or_path "$all" --prompt_file nobody.jsonl
expect 3 'the adapter' generate "${settings[@]}" --adapter_name_or_path small,nowhere --prompt a
expect 2 "two adapters have the name 'small'" generate "${settings[@]}" --adapter_name_or_path small,./small --prompt a
expect 2 'empty part' generate "${settings[@]}" --adapter_name_or_path small,,wide --prompt a
make whole --lora_r 4 --modules_to_save lm_head
expect 2 'modules_to_save' generate "${settings[@]}" --adapter_name_or_path small,whole --prompt a
expect 2 'not supported with offload_params' generate "${settings[@]}" --adapter_name_or_path small,wide --offload_params true --prompt a
cp -r small broken
python3 - <<'END'
data = open("broken/adapter_model.safetensors", "rb").read()
open("broken/adapter_model.safetensors", "wb").write(data.replace(b"layers.1.self_attn.q_proj", b"layers.7.self_attn.q_proj"))
END
expect 3 "checking the adapter 'broken'" generate "${settings[@]}" --adapter_name_or_path small,broken --prompt a
finish
