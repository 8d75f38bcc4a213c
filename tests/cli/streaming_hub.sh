#!/usr/bin/env bash
# streaming of a data set of the hub: by ranges, nothing of its rows in the cache, with the bits of local files, through
# connections that break, kills and resumes.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
source "$root/tests/tools/hub_server.sh"
"$trimtab" download nobody/none 2>err
grep -q "needs libcurl" err && { echo "skipped: there is no libcurl"; exit 77; }
cp -r "$root/tests/golden/qwen2/model" model && cp "$root"/tests/support/tiny_tokenizer/* model && chmod -R u+w model
rows=hub_root/datasets/some/rows cache=$HF_HOME/hub
mkdir -p $rows/data
for i in $(seq 2000); do echo "{\"prompt\": \"$i =\", \"completion\": \" $((i % 7))$((i * i % 101))\"}"; done >$rows/data/train-00000-of-00002.jsonl
head -n 300 $rows/data/train-00000-of-00002.jsonl | gzip >$rows/data/train-00001-of-00002.jsonl.gz
head -n 9 $rows/data/train-00000-of-00002.jsonl >$rows/data/test-00000-of-00001.jsonl
printf -- '---\nlicense: mit\n---\n' >$rows/README.md
train=(train --model_name_or_path model --device cpu --threads 1 --cpu_isa portable --learning_rate 1e-2 --lora_dropout 0
    --save_strategy steps --save_steps 10 --report_to none --streaming true --max_steps 90 --per_device_train_batch_size 32
    --buffer_size 100)
same() { cmp -s "$1/adapter_model.safetensors" "$2/adapter_model.safetensors" || fail "$1 and $2 differ"; }
expect 0 "training data: 2 files" "${train[@]}" --dataset_name $rows --output_dir local
expect 0 "training data: 2 files" "${train[@]}" --dataset_name some/rows --output_dir named
same local named
[ -z "$(find "$cache" -name '*.jsonl*' 2>/dev/null)" ] || fail "rows were downloaded: $(find "$cache" -name '*.jsonl*')"
[ "$(requests "range=bytes=")" -ge 2 ] || fail "nothing was read by ranges"
grep -v "range=bytes=" hub_root/log | grep -q "/resolve/.*train" && fail "a file was asked for as a whole"
# Entries of a mixture, with their revision and files.
expect 0 "training data: 1 file" "${train[@]}" --max_steps 2 --output_dir mixed \
    --datasets '[{"path": "some/rows", "revision": "v1", "data_files": "data/train-00000*"}]'
# Connections that break and servers that are busy: the same bits.
faults "cut 1 train-00000" "503 1 train-00000" "429 1 train-00001" "cut 1 train-00001"
expect 0 "done: 90 steps" "${train[@]}" --dataset_name some/rows --output_dir broken
same local broken
# Killed while it reads, and resumed.
"$trimtab" "${train[@]}" --dataset_name some/rows --output_dir killed >killed.out 2>&1 &
run=$!
for _ in $(seq 4000); do [ -e killed/checkpoint-40 ] && break; kill -0 $run 2>/dev/null || break; sleep 0.025; done
kill -9 $run 2>/dev/null
wait $run 2>/dev/null
expect 0 "" "${train[@]}" --dataset_name some/rows --output_dir killed --resume_from_checkpoint true
same local killed
# Rows that were changed in the repository are refused; rows of the cache are read from there, without the hub.
rm -rf changed && cp -r local changed && rm -rf changed/checkpoint-90 changed/*.json changed/adapter_model.safetensors
sed -i '1990s/=/-/' $rows/data/train-00000-of-00002.jsonl
expect 2 "training data was" "${train[@]}" --dataset_name some/rows --output_dir changed --resume_from_checkpoint true
expect 0 "" download some/rows --repo_type dataset
before=$(wc -l <hub_root/log)
HF_HUB_OFFLINE=1 expect 0 "done: 90 steps" "${train[@]}" --dataset_name some/rows --output_dir cached
expect 0 "done: 90 steps" "${train[@]}" --dataset_name some/rows --output_dir cached2
[ "$(wc -l <hub_root/log)" -eq "$before" ] || fail "the hub was asked for what is in the cache"
same cached cached2
expect 3 "there is no branch, tag or commit 'v9'" "${train[@]}" --dataset_name some/rows --dataset_revision v9 --output_dir x
finish
