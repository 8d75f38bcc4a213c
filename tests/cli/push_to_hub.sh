#!/usr/bin/env bash
# push_to_hub, against a hub of this machine: the result with its card, checkpoints while training goes on, errors before
# the first step and after the last; the token is nowhere.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
source "$root/tests/tools/hub_server.sh"
"$trimtab" download nobody/none 2>err
grep -q "needs libcurl" err && { echo "skipped: there is no libcurl"; exit 77; }
mkdir -p hub_root/models/some hub_root/datasets/some/rows
cp -r "$root/tests/golden/qwen2/model" hub_root/models/some/base && cp "$root"/tests/support/tiny_tokenizer/* hub_root/models/some/base
for i in $(seq 16); do echo "{\"prompt\": \"$i + 1 =\", \"completion\": \" $((i + 1))\"}"; done >hub_root/datasets/some/rows/train.jsonl
run=(train --device cpu --threads 1 --model_name_or_path some/base --dataset_name some/rows --max_steps 4 --save_steps 2
    --push_to_hub true)
expect 2 "needs a token" "${run[@]}" --output_dir none
HF_TOKEN=hf_old expect 3 "it may have expired" "${run[@]}" --output_dir none
[ ! -e none/checkpoint-2 ] || fail "a run trained whose push cannot work"
expect 0 "pushed the result" "${run[@]}" --output_dir out --hub_token hf_good --hub_private_repo true
there=hub_root/models/me/out
[ -e $there/.private ] || fail "the repository is not private"
for file in adapter_model.safetensors adapter_config.json tokenizer.json README.md; do
    cmp out/$file $there/$file || fail "$file differs"
done
[ -z "$(find $there -name 'checkpoint-*' -o -name 'run.json' -o -name '*.jsonl')" ] || fail "too much is there: $(find $there)"
for words in "base_model: some/base" "- some/rows" "library_name: peft" "| learning_rate |" "| steps | 4 |"; do
    grep -qF -- "$words" out/README.md || fail "the card has no '$words': $(cat out/README.md)"
done
grep -q "$folder" out/README.md && fail "the card has a path of this machine"
grep -rq hf_good out printed err && fail "the token was written: $(grep -rl hf_good out printed err)"
[ "$(requests "/api/models/me/out/commit/main")" -ge 2 ] || fail "no checkpoint was pushed: $(grep commit hub_root/log)"
# What was pushed is what the name gives.
HF_TOKEN=hf_good expect 0 "PEFT adapter" inspect me/out
# The result alone, into a branch of another name's repository; a card of another author stays.
mkdir mine && echo "# My own words" >mine/README.md
export HF_TOKEN=hf_good
expect 0 "pushed the result" "${run[@]}" --output_dir mine --hub_model_id team/other --hub_strategy end --overwrite_output_dir false
[ "$(requests "/api/models/team/other/commit/main")" -eq 1 ] || fail "hub_strategy end pushed a checkpoint"
# A push that fails in the middle does not end the training; at the end it does, and the result is there.
faults "later 1 /api/models/me/late/preupload" "later 9 /api/models/me/last/preupload"
expect 0 "training goes on" "${run[@]}" --output_dir late
expect 5 "pushing the result, which is complete in 'last'" "${run[@]}" --output_dir last --hub_strategy end
[ -e last/adapter_model.safetensors ] || fail "the result is not there"
finish
