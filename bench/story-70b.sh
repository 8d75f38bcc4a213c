#!/usr/bin/env bash
# Plans of a model of 70 billion parameters on two GPUs of 24 GiB, four rows. Nothing is run, and no GPU is needed.
#
#     bench/story-70b.sh [trimtab]
#
# DEVICE=rtx4090 plans for another chip than an H200 limited to 24 GiB, MEMORY=48GiB for another limit. The last row
# is arithmetic: attention that stores its scores needs at least 12 bytes for each of heads x batch x length^2: the
# softmax in float32, its copy in bfloat16, and the gradients of both. The row adds this to the plan of that batch
# with the least memory, less the scratch of our own attention.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
trimtab=${1:-$root/build/trimtab}
device=${DEVICE:-h200}
memory=${MEMORY:-24GiB}
length=2048
heads=64 # of bench/shapes/l70b.json

# plan FLAGS: the JSON of a plan; a plan that does not fit is no error here
plan() {
    local code=0
    "$trimtab" plan --json --device "$device" --ranks 2 --device_memory "$memory" \
        --config_json "$root/bench/shapes/l70b.json" --sequence_length $length --lora_r 16 \
        --lora_target_modules q_proj,v_proj --load_in_4bit true --bnb_4bit_use_double_quant true "$@" 2>/dev/null || code=$?
    [ $code -eq 0 ] || [ $code -eq 4 ]
}
# number KEY: the first number of that key in the JSON on standard input
number() {
    sed -n "s/.*\"$1\": *\([0-9.eE+-]*\).*/\1/p" | head -n 1
}
# kept: the levels and their numbers of layers, from the JSON
kept() {
    sed -n 's/.*"recompute": *\[\([^]]*\)\].*/\1/p' | tr -d '" ' | tr ',' '\n' | sort | uniq -c |
        awk '{ printf "%s%s %d", (NR > 1) ? ", " : "", $2, $1 }'
}
row() {
    printf '%-58s %9s  %-14s %9s  %s\n' "$@"
}
gib() {
    awk "BEGIN { printf \"%.1f GiB\", $1 / 1073741824 }"
}
# show TEXT FLAGS: prints a row from the plan
show() {
    local text=$1 json fits speed
    shift
    json=$(plan "$@")
    fits="fits"
    speed=$(printf %.0f "$(number tokens_per_second <<<"$json")")
    grep -q '"fits": true' <<<"$json" || { fits="does not fit" speed=-; }
    row "$text" "$(gib "$(number device_bytes <<<"$json")")" "$fits" "$speed" "$(kept <<<"$json")"
}

row "70B, NF4 with double quantization, 2 x $memory, length $length" "a rank" "" "tokens/s" "computed again, layers"
show "every rank holds all (NO_SHARD), batch 1" --sharding_strategy NO_SHARD --per_device_train_batch_size 1
show "each holds half (FULL_SHARD), batch 1" --per_device_train_batch_size 1
show "batch 2: blocks run again, their inputs wait on the host" --per_device_train_batch_size 2
lean=$(plan --per_device_train_batch_size 2 --recompute offload)
bytes=$(number device_bytes <<<"$lean")
scratch=$(number attention <<<"$lean")
limit=$(number limit_bytes <<<"$lean")
reference=$(awk "BEGIN { printf \"%.0f\", $bytes - $scratch + 12 * $heads * 2 * $length * $length }")
row "batch 2 with attention's scores in memory, at the least" "$(gib "$reference")" \
    "$(awk "BEGIN { print ($reference > $limit) ? \"does not fit\" : \"fits\" }")" - "$(kept <<<"$lean")"
