#!/usr/bin/env bash
# What somebody sees who starts a run of several processes wrongly, at once and once.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
cp -r "$root/tests/golden/qwen2/model" model && cp "$root"/tests/support/tiny_tokenizer/* model/ && chmod -R u+w model
for i in $(seq 8); do echo "{\"prompt\": \"$i + 1 =\", \"completion\": \" $((i + 1))\"}"; done >rows.jsonl
run=(train --model_name_or_path model --dataset_name rows.jsonl --max_steps 1 --report_to none)

# Addresses of rank 0 that are none are no names to look up for 300 s.
for address in '[::1]' tcp://10.0.0.1 10.0.0.1:29500; do
    start=$SECONDS
    RANK=1 WORLD_SIZE=2 MASTER_ADDR=$address expect 2 "the address of rank 0 is '$address', which is not an address alone" "${run[@]}" \
        --output_dir out
    [ $((SECONDS - start)) -lt 10 ] || fail "$address: refused after $((SECONDS - start)) s"
done

# Rank 0 at an address that this machine does not have (a range for documentation, RFC 5737), and at one that it has.
lonely() { RANK=0 WORLD_SIZE=2 MASTER_ADDR=$1 MASTER_PORT=$((20000 + RANDOM % 12000)) expect 10 'rank 1 of 2 did not connect to port' "${run[@]}" \
    --output_dir out --rendezvous_timeout 1; }
lonely 192.0.2.7
grep -q "hint: no interface of this machine has the address '192.0.2.7', at which the other ranks look for rank 0" err || fail "$(cat err)"
lonely 127.0.0.1
grep -q 'hint: see the logs of these ranks' err || fail "$(cat err)"

# The words of torchrun.
hints() { expect 2 "$2" "${run[@]}" --output_dir out "--$1" 2; }
hints nproc_per_node 'ranks, the devices of this machine'
hints master_addr 'main_process_ip'
hints master_port 'main_process_port'

# A warning is printed once, also where the inputs are read twice.
once() {
    local count
    count=$(grep -c 'warning: max_length 1024 is more than' err)
    [ "$count" -eq 1 ] || fail "$1: $count times: $(cat err)"
}
expect 0 'done: 2 steps' "${run[@]}" --max_steps 2 --save_steps 1 --output_dir twice && once train
echo '{"prompt": "9 + 1 =", "completion": " 10"}' >>rows.jsonl
expect 2 'this is not the run that' "${run[@]}" --max_steps 2 --save_steps 1 --output_dir twice --resume_from_checkpoint true && once again
expect 0 '' generate --model_name_or_path model --prompt '1 + 1 =' --max_new_tokens 2
[ "$(grep -c 'warning: by its model_type' err)" -eq 1 ] || fail "generate: $(cat err)"
finish
