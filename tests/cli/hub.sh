#!/usr/bin/env bash
# Models, adapters and data sets by name, from a hub of this machine (tests/tools/fake_hub.py): into the cache as
# huggingface_hub lays it out, once, whole or not at all, whatever breaks.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
source "$root/tests/tools/hub_server.sh"
"$trimtab" download nobody/none 2>err
grep -q "needs libcurl" err && { echo "skipped: there is no libcurl"; exit 77; }

models=hub_root/models data=hub_root/datasets cache=$HF_HOME/hub
mkdir -p $models/some $data/some
cp -r "$root/tests/golden/qwen2/model" $models/some/base && cp "$root"/tests/support/tiny_tokenizer/* $models/some/base
chmod -R u+w $models/some/base
mkdir -p $models/some/base/onnx $models/some/base/additional_chat_templates
head -c 5000 /dev/urandom >$models/some/base/onnx/model.onnx
head -c 2500000 /dev/urandom >$models/some/base/pytorch_model.bin # its sum is made by a thread of its own
printf 'a model' >$models/some/base/README.md
printf '{{ messages }}' >$models/some/base/additional_chat_templates/tool.jinja
cp -r "$root/tests/golden/qwen2/adapter_random" $models/some/adapter
rows() { for i in $(seq "$1"); do echo "{\"prompt\": \"$i + 1 =\", \"completion\": \" $((i + 1))\"}"; done; }
mkdir -p $data/some/rows/data && rows 40 >$data/some/rows/data/train-00000-of-00002.jsonl
rows 30 >$data/some/rows/data/train-00001-of-00002.jsonl && rows 3 >$data/some/rows/data/test-00000-of-00001.jsonl
mkdir -p $data/some/parts/one $data/some/parts/two && rows 5 >$data/some/parts/one/a.jsonl && rows 7 >$data/some/parts/two/b.jsonl
rows 2 >$data/some/parts/two/c.jsonl
cat >$data/some/parts/README.md <<'END'
---
configs:
- config_name: first
  data_files: "one/*.jsonl"
- config_name: second
  data_files:
  - split: train
    path: ["two/b.jsonl"]
  - split: held
    path: two/c.jsonl
---
# Parts
END

train=(train --max_steps 1 --threads 1 --device cpu --model_name_or_path)
# From an empty cache: exactly the files that are needed; the same training from a folder has the same result.
expect 0 "done: 1 step" "${train[@]}" some/base --dataset_name some/rows --output_dir named
expect 0 "done: 1 step" "${train[@]}" $models/some/base --dataset_name $data/some/rows --output_dir local
cmp named/adapter_model.safetensors local/adapter_model.safetensors || fail "the run by names has another result"
commit=$(cat $cache/models--some--base/refs/main)
snapshot=$cache/models--some--base/snapshots/$commit
[ -e "$snapshot/additional_chat_templates/tool.jinja" ] || fail "a chat template was not fetched"
for name in onnx pytorch_model.bin README.md; do [ ! -e "$snapshot/$name" ] || fail "$name was fetched"; done
find "$cache/datasets--some--rows/snapshots" -name "test-*" | grep -q . && fail "another split was fetched"
sum=$(sha256sum <$models/some/base/model.safetensors | cut -d' ' -f1)
[ "$(readlink "$snapshot/model.safetensors")" = "../../blobs/$sum" ] || fail "the link: $(readlink "$snapshot/model.safetensors")"
[ "$(readlink "$snapshot/additional_chat_templates/tool.jinja")" = "../../../blobs/$(git hash-object --no-filters $models/some/base/additional_chat_templates/tool.jinja 2>/dev/null || basename "$(readlink "$snapshot/additional_chat_templates/tool.jinja")")" ] ||
    fail "the link of a small file in a folder"
[ -e "$cache/.locks/models--some--base/$sum.lock" ] || fail "there is no lock"
find "$cache" -name '*.incomplete' | grep -q . && fail "something incomplete was left"
# What is in the cache needs no network.
before=$(wc -l <hub_root/log)
expect 0 "done: 1 step" "${train[@]}" some/base --dataset_name some/rows --output_dir again
[ "$(wc -l <hub_root/log)" -eq "$before" ] || fail "the hub was asked again: $(tail -n 1 hub_root/log)"
# Another split, and an adapter by its name.
expect 0 "" eval --model some/base --adapter some/adapter --eval_dataset some/rows
find "$cache/datasets--some--rows/snapshots" -name "test-*" | grep -q . || fail "the split was not fetched"
# An adapter and a model at a revision.
rm -rf "$cache/models--some--adapter"
expect 0 "" eval --model some/base --adapter some/adapter@v1 --eval_dataset some/rows
[ -e "$cache/models--some--adapter/refs/v1" ] && [ ! -e "$cache/models--some--adapter/refs/main" ] || fail "the ref of an adapter"
HF_HUB_OFFLINE=1 expect 3 "some/adapter" eval --model some/base --adapter some/adapter --eval_dataset some/rows
HF_HUB_OFFLINE=1 expect 0 "model folder" inspect "some/base@$commit"
expect 3 "there is no branch, tag or commit 'v9'" eval --model some/base --adapter some/adapter@v9 --eval_dataset some/rows
expect 0 "" merge --model_name_or_path "some/base@v1" --adapter_name_or_path some/adapter@v1 --output_dir merged
for name in some/adapter@ some/adapter@a@b @v1 some@v1; do
    expect 3 "" eval --model some/base --adapter $name --eval_dataset some/rows
done
# Configurations of a card.
expect 0 "training data: 5 rows" "${train[@]}" some/base --dataset_name some/parts:first --output_dir first
expect 0 "training data: 7 rows" "${train[@]}" some/base --dataset_name some/parts:second --output_dir second
expect 0 "training data: 2 rows" "${train[@]}" some/base --dataset_name some/parts:second --dataset_train_split held --output_dir held
expect 3 "NAME:CONFIGURATION: first, second" "${train[@]}" some/base --dataset_name some/parts --output_dir x
expect 3 "no configuration 'third'" "${train[@]}" some/base --dataset_name some/parts:third --output_dir x

# Files of a mixture, and no others; a revision of a data set, in a mixture and alone.
parts=$cache/datasets--some--parts && rm -rf "$parts"
expect 0 "training data: 9 rows" "${train[@]}" some/base --datasets '[{"path": "some/parts", "data_files": "two/*.jsonl"}]' \
    --output_dir mixed
[ "$(find "$parts/snapshots" -type l -printf '%f ')" = "b.jsonl c.jsonl " ] || [ "$(find "$parts/snapshots" -type l -printf '%f ')" = \
    "c.jsonl b.jsonl " ] || fail "other files were fetched: $(find "$parts/snapshots" -type l)"
expect 0 "training data: 7 rows" "${train[@]}" some/base --output_dir mixed_name \
    --datasets '[{"path": "some/parts", "name": "second", "revision": "v1"}]'
[ -e "$parts/refs/v1" ] || fail "the revision of an entry has no ref"
expect 3 "has no file 'three/*.jsonl' at main" "${train[@]}" some/base --output_dir x \
    --datasets '[{"path": "some/parts", "data_files": "three/*.jsonl"}]'
rm -rf "$cache/datasets--some--rows"
expect 0 "training data: 70 rows" "${train[@]}" some/base --dataset_name some/rows --dataset_revision v1 --output_dir revised
[ -e "$cache/datasets--some--rows/refs/v1" ] && [ ! -e "$cache/datasets--some--rows/refs/main" ] || fail "the ref of a data set"
expect 3 "there is no branch, tag or commit 'v9'" "${train[@]}" some/base --dataset_name some/rows --dataset_revision v9 \
    --output_dir x
HF_HUB_OFFLINE=1 expect 0 "training data: 9 rows" "${train[@]}" some/base --output_dir offline \
    --datasets '[{"path": "some/parts", "data_files": "two/*.jsonl"}]'

# download: all files, or those of patterns, of a branch, tag or commit.
fresh() { rm -rf "$cache"; }
fresh
expect 0 "/snapshots/$commit" download some/base --revision v1
[ "$(cat $cache/models--some--base/refs/v1)" = "$commit" ] || fail "the ref of a tag"
[ "$(cd "$snapshot" && find . -type l | wc -l)" -eq "$(find $models/some/base -type f | wc -l)" ] || fail "not all files are there"
(cd $models/some/base && find . -type f) | while read -r file; do cmp "$models/some/base/$file" "$snapshot/$file"; done ||
    fail "a file differs"
fresh
expect 0 "" download some/base --revision "$commit" --include "*.json" README.md
[ ! -e $cache/models--some--base/refs ] || fail "a commit has a ref"
[ -e "$snapshot/config.json" ] && [ -e "$snapshot/README.md" ] && [ ! -e "$snapshot/model.safetensors" ] || fail "the patterns"
expect 0 "" download some/rows --repo_type dataset --include "data/test*"
expect 3 "has no file 'none.txt'" download some/base --include none.txt
[ -e "$cache/models--some--base/.no_exist/$commit/none.txt" ] || fail "the missing file is not remembered"
# What the cache lacks of a name is completed.
expect 0 "done: 1 step" "${train[@]}" some/base --dataset_name some/rows --output_dir completed

# A plan needs no weights; what trains later fetches them.
fresh
expect 0 "in host memory" plan --model some/base --device h200
[ -e "$snapshot/config.json" ] && [ ! -e "$snapshot/model.safetensors" ] || fail "a plan fetched weights"
expect 0 "model folder" inspect some/base
[ -e "$snapshot/model.safetensors" ] || fail "the weights were not fetched after a plan"

# Connections that break, servers that are busy, signatures that expire: the file goes on where it broke off.
fresh
faults "cut 2 /cdn/" "429 1 /revision/" "503 1 /tree/" "expired 1 /cdn/" "500 1 config.json"
expect 0 "trying again" download some/base
cmp $models/some/base/model.safetensors "$snapshot/model.safetensors" || fail "the file differs after its connection broke"
[ "$(requests "range=bytes=")" -ge 1 ] || fail "nothing went on where it broke off"
# A wrong sum: an error, and nothing of it under a name.
fresh
faults "wrong 1 /cdn/$sum"
expect 3 "and the hub says $sum" download some/base
[ ! -e "$snapshot" ] && [ ! -e "$cache/models--some--base/blobs/$sum" ] || fail "a wrong file has a name"
expect 0 "" download some/base
cmp $models/some/base/model.safetensors "$snapshot/model.safetensors" || fail "the file differs after a wrong sum"
large=$(sha256sum <$models/some/base/pytorch_model.bin | cut -d' ' -f1)
rm "$cache/models--some--base/blobs/$large"
faults "wrong 1 /cdn/$large"
expect 3 "and the hub says $large" download some/base
[ ! -e "$cache/models--some--base/blobs/$large" ] || fail "a wrong large file has a name"
faults "cut 1 /cdn/$large"
expect 0 "" download some/base
cmp $models/some/base/pytorch_model.bin "$snapshot/pytorch_model.bin" || fail "a large file differs after its connection broke"
# What another program left of a file, right or wrong.
for left in right wrong; do
    rm "$cache/models--some--base/blobs/$sum"
    head -c 2000 $models/some/base/model.safetensors >"$cache/models--some--base/blobs/$sum.incomplete"
    [ $left = right ] || head -c 2000 /dev/urandom >"$cache/models--some--base/blobs/$sum.incomplete"
    expect 0 "" download some/base
    cmp $models/some/base/model.safetensors "$snapshot/model.safetensors" || fail "the file differs from a $left beginning"
done
# Killed in the middle: the name is not found, and the next call goes on.
fresh
faults "hang 1 /cdn/$sum"
"$trimtab" download some/base >/dev/null 2>&1 &
killed=$!
for _ in $(seq 1000); do [ -s "$cache/models--some--base/blobs/$sum.incomplete" ] && break; sleep 0.1; done
kill -9 $killed && wait $killed 2>/dev/null
[ ! -e $cache/models--some--base/refs/main ] || fail "a killed download can be found by its name"
HF_HUB_OFFLINE=1 expect 3 "trimtab download some/base" inspect some/base
expect 0 "" inspect some/base
cmp $models/some/base/model.safetensors "$snapshot/model.safetensors" || fail "the file differs after the kill"
# Two processes fetch one repository: each file once.
fresh
before=$(requests "/cdn/$sum")
"$trimtab" download some/base >one 2>&1 & first=$!
"$trimtab" download some/base >two 2>&1 || fail "the second download: $(cat two)"
wait $first || fail "the first download: $(cat one)"
[ $(($(requests "/cdn/$sum") - before)) -eq 1 ] || fail "two processes fetched a file twice"

# Access: the token goes to the hub alone and is not shown.
cp -r $models/some/adapter $models/some/closed && touch $models/some/closed/.private
cp -r $models/some/adapter $models/some/gated && touch $models/some/gated/.gated
expect 3 "needs HF_TOKEN" download some/closed
expect 3 "agree to the terms at $HF_ENDPOINT/some/gated, and set HF_TOKEN" download some/gated
HF_TOKEN=hf_old expect 3 "it may have expired" download some/closed
grep -q hf_old printed err && fail "the token is shown"
HF_TOKEN=hf_good expect 0 "" download some/closed
rm -rf "$cache" && mkdir -p "$HF_HOME" && printf 'hf_good\n' >"$HF_HOME/token"
expect 0 "" download some/gated
rm "$HF_HOME/token"
grep "127.0.0.2" hub_root/log | grep -v "token=- " && fail "a token went to another host"
expect 3 "there is no branch, tag or commit 'v9'" download some/base --revision v9
expect 3 "is the name right?" download some/nothing
expect 2 "OWNER/NAME" download ../some
HF_HUB_OFFLINE=1 expect 2 "HF_HUB_OFFLINE" download some/base

# A local path never asks the hub: a folder of the first part is there, or the name has no owner.
before=$(wc -l <hub_root/log)
mkdir -p out && expect 3 "does not exist" "${train[@]}" out/model --dataset_name some/rows --output_dir x
expect 3 "does not exist" "${train[@]}" model --dataset_name rows --output_dir x
expect 3 "does not exist" "${train[@]}" ./some/base --dataset_name rows --output_dir x
[ "$(wc -l <hub_root/log)" -eq "$before" ] || fail "a local path led to the hub: $(tail -n 1 hub_root/log)"
HF_ENDPOINT=file:///etc expect 2 "no address of a hub" download some/base

# huggingface_hub reads this cache, and checks the server of this test.
if "${TT_PYTHON:-python3}" -c "import huggingface_hub" 2>/dev/null; then
    fresh
    "$trimtab" download some/base >ours 2>err || fail "$(cat err)"
    cat >check.py <<'PYTHON'
import os, sys
from huggingface_hub import scan_cache_dir, snapshot_download, try_to_load_from_cache
ours = open("ours").read().strip()
assert snapshot_download("some/base", local_files_only=True) == ours
assert try_to_load_from_cache("some/base", "config.json") == os.path.join(ours, "config.json")
report = scan_cache_dir()
assert not report.warnings and len(report.repos) == 1, report
listing = {name: os.readlink(os.path.join(root, name)) for root, _, names in os.walk(ours) for name in names}
before = sum(1 for _ in open("hub_root/log") if "/resolve/" in _)
assert snapshot_download("some/base") == ours
theirs = snapshot_download("some/base", cache_dir="theirs")
assert {name: os.readlink(os.path.join(root, name)) for root, _, names in os.walk(theirs) for name in names} == listing
assert open("theirs/models--some--base/refs/main").read() == open(os.path.join(os.environ["HF_HOME"], "hub/models--some--base/refs/main")).read()
for kind in ("blobs", "refs"):
    assert sorted(os.listdir(f"theirs/models--some--base/{kind}")) == \
        sorted(os.listdir(os.path.join(os.environ["HF_HOME"], f"hub/models--some--base/{kind}"))), kind
PYTHON
    "${TT_PYTHON:-python3}" check.py >checked 2>&1 || fail "huggingface_hub: $(tail -n 5 checked)"
    before=$(wc -l <hub_root/log)
    HF_HUB_CACHE=$folder/theirs expect 0 "" inspect some/base
    [ "$(wc -l <hub_root/log)" -eq "$before" ] || fail "its cache was not enough"
else
    echo "skipped: huggingface_hub is not installed (TT_PYTHON)"
fi
finish
