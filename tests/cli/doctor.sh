#!/usr/bin/env bash
# trimtab doctor: one process, ranks of one process, two processes with separate folders; the settings of a training;
# exit code 10 where a check fails; no file is left behind.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
cp -r "$root/tests/golden/qwen2/model" model && chmod -R u+w model
echo '{"text": "1"}' >rows.jsonl
mkdir out

expect 0 ' failed, ' doctor
expect 0 'storage     ok' doctor --output_dir out/not/there/yet
expect 0 "'model' is readable on every rank" doctor --model_name_or_path model --dataset_name rows.jsonl
expect 10 "'nowhere' is missing" doctor --model_name_or_path nowhere
expect 10 'checks failed' doctor --dataset_name nowhere.jsonl --json
expect 2 'there is no setting' doctor --learning_rat 1
printf 'model_name_or_path: model\ndataset_name: rows.jsonl\noutput_dir: out\nlora_r: 4\nlearning_rate: 1e-4\n' >sft.yaml
expect 0 'the sum is right' doctor --config sft.yaml --ranks 3 --threads 1 --json
python3 - <<'END' || fail "the JSON object is not as described:" "$(cat printed)"
import json
result = json.load(open("printed"))
names = [check["name"] for check in result["checks"]]
assert names == ["launch", "devices", "limits", "network", "clocks", "speed", "copies", "all-reduce", "links", "storage", "plan", "model", "data"], names
assert len(result["ranks"]) == 3 and all(rank["flops"] > 1e8 and rank["link_bytes_per_second"] > 1e6 for rank in result["ranks"])
assert [rank["write_bytes_per_second"] > 0 for rank in result["ranks"]] == [True, False, False]
assert result["transport"] == "threads" and result["seconds"] < 60
END

# Two processes, each with a folder of its own: it is seen that these are not shared.
mkdir other
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
for rank in 0 1; do
    folders=(out other)
    RANK=$rank WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=$port timeout 60 "$trimtab" doctor --threads 1 \
        --output_dir "${folders[rank]}" >printed.$rank 2>err.$rank &
    pids[rank]=$!
done
for rank in 0 1; do wait "${pids[rank]}" || fail "rank $rank ended with $?:" "$(cat printed.$rank err.$rank)"; done
grep -q "^storage     warning .*rank 1 on .* does not see rank 0's file" printed.0 || fail "separate folders:" "$(cat printed.0)"
grep -q '^launch      ok       2 ranks on 1 machine over tcp' printed.0 || fail "the launch:" "$(cat printed.0)"
[ -s printed.1 ] && fail "rank 1 prints a table too"
[ -z "$(find . -name '.trimtab-doctor*')" ] || fail "files are left:" "$(find . -name '.trimtab-doctor*')"
[ -e out/not ] && fail "a folder was made"
# What a training needs, by its plan: memory, room for checkpoints, time to stop.
expect 10 "the machine has" doctor --config sft.yaml --model_name_or_path "$root/examples/demo/model" --per_device_train_batch_size 100000
expect 2 "'lora_r' takes a whole number" doctor --config sft.yaml --lora_r x
# Before a training: nothing is said where all is well.
expect 0 "preflight: 9 checks in" train --model_name_or_path "$root/examples/demo/model" --dataset_name "$root/examples/demo/data/train.jsonl" \
    --output_dir trained --max_steps 1 --preflight quick --ranks 2 --threads 1 --max_length 64
cat printed err | grep -q 'warning: preflight' && fail "a preflight warns:" "$(cat err)"
expect 2 "preflight" train --config sft.yaml --preflight slow
finish
