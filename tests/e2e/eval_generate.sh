#!/usr/bin/env bash
# --eval_generate N: each evaluation completes rows of its data with the weights of that step, as generate does with the
# checkpoint; the training itself has the same bits with and without; rows of conversations; ranks; a resume keeps the
# lines of the part before. eval --exact_match answers conversations too.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
if ! command -v python3 >/dev/null; then
    echo "skipped: all of it: no python3"
    exit 77
fi
cp -r "$root/tests/golden/qwen2/model" model && cp "$root"/tests/support/tiny_tokenizer/* model/ && chmod -R u+w model
for i in $(seq 24); do echo "{\"prompt\": \"the sum $i + 1 =\", \"completion\": \" $((i + 1))\"}"; done >train.jsonl
for i in 3 5 12; do echo "{\"prompt\": \"the sum $i + 1 =\", \"completion\": \" $((i + 1))\"}"; done >test.jsonl
common=(--model_name_or_path model --dataset_name train.jsonl --eval_dataset test.jsonl --learning_rate 0.02
    --eval_strategy steps --eval_steps 4 --save_steps 4 --report_to none --bf16 false)
shown=(--eval_generate 2 --eval_generate_tokens 5)
# run OUT flags...
run() {
    "$trimtab" train "${common[@]}" --output_dir "$@" >printed 2>err || fail "train $* -> $?:" "$(tail -5 err)"
}
# check OUT CHECKPOINT: the last rows of generations.jsonl are what generate says with the checkpoint.
check() {
    "$trimtab" generate --model_name_or_path model --adapter_name_or_path "$2" --prompt_file test.jsonl --bf16 false \
        --max_new_tokens 5 "${more[@]}" >wanted.jsonl 2>err || fail "generate: $(cat err)"
    python3 - "$1/generations.jsonl" "${2##*-}" <<'END' || fail "$1: another completion than that of $2"
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
wanted = [json.loads(line) for line in open("wanted.jsonl")]
rows = [row for row in rows if row["step"] == int(sys.argv[2])]
assert [row["row"] for row in rows] == [1, 2], rows
for row, want in zip(rows, wanted): assert row["completion"] == want["completion"], (row, want)
END
}
more=()
run plain --max_steps 8
run shown --max_steps 8 "${shown[@]}"
cmp plain/adapter_model.safetensors shown/adapter_model.safetensors || fail "the adapter changes"
python3 - <<'END' || fail "a logged number changes"
import json
def read(folder):
    rows = [json.loads(line) for line in open(folder + "/metrics.jsonl")]
    keys = ("step", "loss", "grad_norm", "eval_loss", "train_loss", "entropy")
    return [{key: row[key] for key in keys if key in row} for row in rows if "event" not in row]
assert read("plain") == read("shown") and len(read("plain")) > 3, (read("plain"), read("shown"))
a, b = ([json.loads(line) for line in open("shown/generations.jsonl")][i] for i in (0, 2))
assert a["reference"] == " 4" and a["completion"] != b["completion"], (a, b) # else old keys and values would pass
END
check shown shown/checkpoint-4
check shown shown/checkpoint-8
"$trimtab" train "${common[@]}" --output_dir again --max_steps 4 "${shown[@]}" >printed 2>err || fail "train: $(cat err)"
grep -q '^row 2 of the evaluation data after step 4:$' err || fail "nothing is shown:" "$(cat err)"
planned=$(awk '/^  in all/ && NF == 6 { print $3, $4, $5, $6 }' err)
[ -n "$planned" ] && [ "${planned% * *}" = "${planned#* * }" ] || fail "planned and used: $planned"

# A preference has both of its answers beside what the model writes, and counts as one row.
for i in 3 5 12; do
    echo "{\"prompt\": \"the sum $i + 1 =\", \"chosen\": \" $((i + 1))\", \"rejected\": \" $((i + 2)), no\"}"
done >pairs.jsonl
run pairs --max_steps 4 "${shown[@]}" --objective dpo --dataset_name pairs.jsonl --eval_dataset pairs.jsonl
grep -q '^  rejected:  7, no$' err || fail "the rejected answer is not shown:" "$(cat err)"
check pairs pairs/checkpoint-4
python3 - <<'END' || fail "a preference: $(cat pairs/generations.jsonl)"
import json
row = [json.loads(line) for line in open("pairs/generations.jsonl")][1]
assert row["row"] == 2 and row["reference"] == " 6" and row["rejected"] == " 7, no", row
END

# Ranks, with the weights in shards.
run shards --max_steps 4 --ranks 2 --sharding_strategy FULL_SHARD "${shown[@]}"
check shards shards/checkpoint-4
# A resumed run has the rows of all steps once.
run shown --max_steps 8 "${shown[@]}" --resume_from_checkpoint shown/checkpoint-4
[ "$(grep -o '"step": [0-9]*' shown/generations.jsonl | tr '\n' ' ')" = \
    '"step": 4 "step": 4 "step": 8 "step": 8 ' ] || fail "resumed: $(cat shown/generations.jsonl)"

# Conversations: the prompt is that of the template, the reference the last answer.
cat >model/chat_template.jinja <<'END'
{% for m in messages %}{{ '<' + m.role + '> ' }}{% if m.role == 'assistant' %}{% generation %}{{ m.content + '</s>' }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}{{ '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<assistant> ' }}{% endif %}
END
python3 - <<'END'
import json
def rows(name, numbers):
    with open(name, "w") as file:
        for n in numbers:
            turns = [("user", f"{n} + 1 ="), ("assistant", str(n + 1)), ("user", "and 2 more?"), ("assistant", str(n + 3))]
            print(json.dumps({"messages": [{"role": r, "content": c} for r, c in turns]}), file=file)
rows("talks.jsonl", range(1, 17))
rows("test_talks.jsonl", (3, 5, 12))
with open("test.jsonl", "w") as file:
    for n in (3, 5, 12):
        row = {"messages": [{"role": "user", "content": f"{n} + 1 ="}, {"role": "assistant", "content": str(n + 1)},
                            {"role": "user", "content": "and 2 more?"}]}
        print(json.dumps(row), file=file)
END
common[3]=talks.jsonl common[5]=test_talks.jsonl
run talks --max_steps 4 --assistant_only_loss true "${shown[@]}"
"$trimtab" generate --model_name_or_path model --adapter_name_or_path talks/checkpoint-4 --messages test.jsonl --bf16 false \
    --max_new_tokens 5 >wanted.jsonl 2>err || fail "generate: $(cat err)"
python3 - <<'END' || fail "conversations: other completions"
import json
rows = [json.loads(line) for line in open("talks/generations.jsonl")]
wanted = [json.loads(line) for line in open("wanted.jsonl")]
assert [row["reference"] for row in rows] == ["6", "8"], rows
for row, want in zip(rows, wanted):
    assert row["prompt"] == want["prompt"] and row["completion"] == want["completion"], (row, want)
END
eval=(eval --model_name_or_path model --adapter_name_or_path talks --eval_dataset test_talks.jsonl --bf16 false
    --assistant_only_loss true --exact_match --max_new_tokens 5)
"$trimtab" "${eval[@]}" --json >printed 2>err || fail "exact match: $(cat err)"
grep -q '"exact_rows": 3' printed || fail "exact match of conversations:" "$(cat printed)"
# Its time is that of all it does.
python3 - <<'END' || fail "exact match: the time of the completions is left out:" "$(cat printed)"
import json
result = json.load(open("printed"))
assert result["seconds"] > result["loss_seconds"] > 0, result
END
"$trimtab" "${eval[@]}" --json --ranks 2 >printed2 2>err || fail "exact match, 2 ranks: $(cat err)"
[ "$(grep -o '"exact_match.*' printed)" = "$(grep -o '"exact_match.*' printed2)" ] || fail "2 ranks match others:" "$(cat printed printed2)"
# A reference that the model writes itself matches.
python3 - <<'END'
import json
wanted = [json.loads(line) for line in open("wanted.jsonl")]
asked = [json.loads(line) for line in open("test.jsonl")]
with open("own.jsonl", "w") as file:
    for row, want in zip(asked, wanted):
        row["messages"].append({"role": "assistant", "content": want["completion"]})
        print(json.dumps(row), file=file)
END
if ! grep -q 'ufffd' own.jsonl; then
    eval[6]=own.jsonl
    "$trimtab" "${eval[@]}" --json >printed 2>err || fail "exact match of its own answers: $(cat err)"
    grep -q '"exact_matches": 3' printed || fail "its own answers do not match:" "$(cat printed own.jsonl)"
fi

expect 2 'no row of the evaluation data has a prompt' train "${common[@]}" --output_dir none --max_steps 2 "${shown[@]}"
expect 2 'eval_generate needs evaluations' train "${common[@]}" --output_dir none --max_steps 2 "${shown[@]}" --eval_strategy no
finish
