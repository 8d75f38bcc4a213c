#!/bin/bash
# Models with scores from one command to the next: a reward model and a classifier are trained, evaluated, merged into a
# folder of transformers' class and evaluated again with the same numbers; all weights train into such a folder; what
# needs a language model refuses them.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
demo=$root/examples/demo/model
python3 - <<'END' || fail "python3"
import json
with open("pairs.jsonl", "w") as pairs, open("classes.jsonl", "w") as classes:
    for i in range(8):
        pairs.write(json.dumps({"prompt": f"{i} + 1 =", "chosen": f" {i + 1}", "rejected": " no", "margin": i % 2}) + "\n")
        classes.write(json.dumps({"text": f"word {i}", "label": ["even", "odd"][i % 2]}) + "\n")
END
common="--model_name_or_path $demo --max_steps 2 --per_device_train_batch_size 4 --device cpu --threads 1 --report_to none"
"$trimtab" reward $common --dataset_name pairs.jsonl --output_dir reward >said 2>&1 || fail "reward:" "$(tail -n 3 said)"
! grep -q "try it" said || fail "a reward model writes no text:" "$(grep 'try it' said)"
"$trimtab" classification $common --dataset_name classes.jsonl --id2label even odd --output_dir classes >said 2>&1 ||
    fail "classification:" "$(tail -n 3 said)"
"$trimtab" classification $common --dataset_name classes.jsonl --id2label even odd --output_dir full --use_peft false >said 2>&1 ||
    fail "classification of all weights:" "$(tail -n 3 said)"
"$trimtab" merge --model_name_or_path "$demo" --adapter_name_or_path reward --output_dir reward_model --save_dtype float32 >said 2>&1 ||
    fail "merge:" "$(tail -n 3 said)"
"$trimtab" merge --model_name_or_path "$demo" --adapter_name_or_path classes --output_dir class_model --save_dtype float32 \
    --id2label even odd >said 2>&1 || fail "merge:" "$(tail -n 3 said)"
python3 - <<'END' || fail "the files are not those of transformers and PEFT"
import json, struct
def config(folder): return json.load(open(folder + "/config.json"))
def names(file):
    with open(file, "rb") as f:
        return set(json.loads(f.read(struct.unpack("<Q", f.read(8))[0])))
for folder in ("reward", "classes"):
    adapter = json.load(open(folder + "/adapter_config.json"))
    assert adapter["task_type"] == "SEQ_CLS" and adapter["modules_to_save"] == ["score"], adapter
    assert "base_model.model.score.weight" in names(folder + "/adapter_model.safetensors")
for folder, labels in ("reward_model", ["LABEL_0"]), ("class_model", ["even", "odd"]), ("full", ["even", "odd"]):
    made = config(folder)
    assert made["architectures"][0].endswith("ForSequenceClassification"), made
    assert list(made["id2label"].values()) == labels and made["label2id"] == {n: i for i, n in enumerate(labels)}, made
    tensors = names(folder + "/model.safetensors")
    assert "score.weight" in tensors and "lm_head.weight" not in tensors
END
# numbers OBJECTIVE ROWS FLAGS: what the evaluation prints.
numbers() {
    local objective=$1 rows=$2
    shift 2
    "$trimtab" eval --objective "$objective" --eval_dataset "$rows" --bf16 false --device cpu --threads 1 "$@" 2>said | grep -v seconds
}
same() { [ -n "$1" ] && [ "$1" = "$2" ] || fail "$3: '$1', '$2'" "$(tail -n 3 said)"; }
same "$(numbers reward pairs.jsonl --model_name_or_path "$demo" --adapter_name_or_path reward | cut -c 1-22)" \
    "$(numbers reward pairs.jsonl --model_name_or_path reward_model | cut -c 1-22)" "a merged reward model"
same "$(numbers classification classes.jsonl --id2label even odd --model_name_or_path "$demo" --adapter_name_or_path classes | cut -c 1-22)" \
    "$(numbers classification classes.jsonl --id2label even odd --model_name_or_path class_model | cut -c 1-22)" "a merged classifier"
numbers classification classes.jsonl --id2label even odd --model_name_or_path full | grep -q '^f1 ' || fail "no f1" "$(cat said)"

expect 0 "weights shard" plan --objective reward --model_name_or_path "$demo" --device cpu --sequence_length 32
expect 0 "id2label: [" classification $common --dataset_name d --output_dir o --id2label even odd --print_config
expect 0 "modules_to_save" inspect reward
expect 2 "the adapter is one of a model with scores (task_type SEQ_CLS)" generate --model_name_or_path "$demo" \
    --adapter_name_or_path reward --prompt a
expect 2 "gives each sequence scores of 2 labels" generate --model_name_or_path class_model --prompt a
expect 2 "gives each sequence scores of 1 label" export gguf --model_name_or_path reward_model --output_file a.gguf
expect 2 "the model has scores of 2 labels, and 3 are asked for" eval --objective classification --model_name_or_path class_model \
    --eval_dataset classes.jsonl --id2label a b c
expect 2 "nothing says how many labels there are" eval --objective classification --model_name_or_path "$demo" --eval_dataset classes.jsonl
expect 2 "id2label has 3 names, and the model scores of 2 labels" merge --model_name_or_path "$demo" --adapter_name_or_path classes \
    --output_dir other --id2label a b c
expect 2 "the objective is sft" train $common --dataset_name classes.jsonl --output_dir o --id2label a b
"$trimtab" train $common --dataset_name classes.jsonl --output_dir language >said 2>&1 || fail "train:" "$(tail -n 3 said)"
expect 2 "the adapter is one of a language model, and this needs one of a model with scores" reward $common --dataset_name pairs.jsonl \
    --output_dir o --adapter_name_or_path language
sed 's/SEQ_CLS/TOKEN_CLS/' reward/adapter_config.json >changed && mv changed reward/adapter_config.json
expect 2 "task_type is 'TOKEN_CLS', and only CAUSAL_LM and SEQ_CLS are supported" merge --model_name_or_path "$demo" \
    --adapter_name_or_path reward --output_dir other
finish
