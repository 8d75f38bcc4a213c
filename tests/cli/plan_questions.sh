#!/bin/bash
# plan --max, --compare, --units, --details: the largest run fits and the next does not, in plans and in a real run.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
shapes=$root/bench/shapes

# largest KEY words...: prints the value that --max found
largest() {
    "$trimtab" plan "${@:2}" >"$folder/out" 2>"$folder/err" || fail "${*:2}: $(cat "$folder/err")"
    sed -nE "s/^the largest that fits: --$1 ([0-9]+);.*/\1/p" "$folder/out"
}
# borders KEY VALUE words...: a plan with VALUE fits, one with VALUE + 1 does not
borders() {
    local key=$1 value=$2 code=0
    shift 2
    [[ $value =~ ^[1-9][0-9]*$ ]] || { fail "$*: no largest value"; return; }
    "$trimtab" plan "$@" "--$key" "$value" >"$folder/out" 2>&1 || fail "$*: $key $value does not fit"
    "$trimtab" plan "$@" "--$key" $((value + 1)) >"$folder/out" 2>&1 || code=$?
    [ $code -eq 4 ] || fail "$*: $key $((value + 1)): exit $code instead of 4"
}
# question MAX KEY words...
question() {
    local value
    value=$(largest "$2" --max "$1" "${@:3}")
    borders "$2" "$value" "${@:3}"
}
batch=per_device_train_batch_size
nf4=(--load_in_4bit true --bnb_4bit_use_double_quant true)
question batch "$batch" --device h200 --ranks 2 --config_json "$shapes/m11b.json" \
    --sequence_length 4096 --lora_r 8 --lora_target_modules q_proj,k_proj,v_proj,o_proj
question batch "$batch" --device rtx4090 --config_json "$shapes/l8b.json" --sequence_length 4096 \
    "${nf4[@]}"
question batch "$batch" --device rtx4090 --ranks 2 --config_json "$shapes/l70b.json" \
    --sequence_length 2048 "${nf4[@]}"
question length sequence_length --device rtx4090 --config_json "$shapes/l8b.json" "${nf4[@]}"

# A training of that size runs under the limit, the next one is refused before it starts.
model=$root/tests/golden/llama2/model
ids=$(seq -s ', ' 1 64)
yes "{\"input_ids\": [$ids]}" | head -n 40 >rows.jsonl
setting=(--model_name_or_path "$model" --max_length 64 --device cpu --threads 1 --device_memory 20MiB)
value=$(largest per_device_train_batch_size --max batch "${setting[@]}")
borders per_device_train_batch_size "$value" "${setting[@]}"
train() {
    "$trimtab" train "${setting[@]}" --dataset_name rows.jsonl --output_dir "out$1" --max_steps 1 --save_strategy no \
        --report_to none --per_device_train_batch_size "$1" >"$folder/said" 2>&1
}
[ "$value" -gt 1 ] && [ "$value" -lt 40 ] || fail "the largest batch is $value: the limit is not a useful one"
train "$value" || fail "a training of the largest batch: $(cat "$folder/said")"
code=0
train $((value + 1)) || code=$?
[ $code -eq 4 ] || fail "a training of the next batch: exit $code instead of 4"

# A detector: batches, and sizes of images whose longer side stays in proportion.
detector=(--task detection --bf16 false --device cpu)
question batch "$batch" "${detector[@]}" --image_size 320 --device_memory 6GiB
question batch "$batch" --task detection --device l4 --norm batch --ranks 2
# sizes MAX words...: the largest image_size of images whose longer side is MAX for a shorter one of 800
sizes() {
    local found value code=0
    "$trimtab" plan "${@:2}" --image_size 800 --max_image_size "$1" --max image_size >"$folder/out" 2>"$folder/err" ||
        fail "${*:2}: $(cat "$folder/err")"
    found=$(sed -nE 's/^the largest that fits: --image_size ([0-9]+ --max_image_size [0-9]+); [0-9]+ needs .* more than the limit$/\1/p' \
        "$folder/out")
    value=${found%% *}
    [[ $value =~ ^[0-9]+$ ]] && [ "$found" = "$value --max_image_size $(((2 * value * $1 + 800) / 1600))" ] ||
        { fail "${*:2}: the largest is '$found': $(cat "$folder/out")"; return; }
    # shellcheck disable=SC2086
    "$trimtab" plan "${@:2}" --image_size $found >"$folder/out" 2>&1 || fail "${*:2}: image_size $found does not fit"
    value=$((value + 1))
    "$trimtab" plan "${@:2}" --image_size $value --max_image_size $(((2 * value * $1 + 800) / 1600)) >"$folder/out" 2>&1 || code=$?
    [ $code -eq 4 ] || fail "${*:2}: image_size $value: exit $code instead of 4"
}
sizes 1333 "${detector[@]}" --device_memory 4GiB
sizes 800 --task detection --device l4 --per_device_train_batch_size 8
"$trimtab" plan "${detector[@]}" --device_memory 2GiB --max image_size --json >"$folder/json" || fail "--json --max image_size"
grep -Eq '"largest": {"of": "image_size", "value": [1-9][0-9]*, .*"max_image_size": [1-9]' "$folder/json" ||
    fail "--json of image_size: $(cat "$folder/json")"
"$trimtab" plan --task detection --device h200 --json >"$folder/json" || fail "--json of a detector"
grep -q '"images_per_second": [1-9]' "$folder/json" && ! grep -q tokens "$folder/json" || fail "tokens of images: $(cat "$folder/json")"
expect 4 "this run needs" plan "${detector[@]}" --device_memory 64MiB --max image_size
grep -q 'use a smaller --image_size' err || fail "no hint about image_size: $(cat err)"
expect 2 "a detector has images, and no rows with a length" plan "${detector[@]}" --max length
expect 2 "a language model has rows, and no images" plan --config_json "$shapes/tiny.json" --max image_size

# Where not even the smallest fits, the plan says so; processors have the limit of their machine.
expect 4 "this run needs" plan --max batch --device rtx4090 --config_json "$shapes/l70b.json" --sequence_length 4096
question batch "$batch" --device cpu --config_json "$shapes/tiny.json" --threads 1
expect 4 "of host memory for 1000 ranks on this machine, " plan --device cpu --ranks 1000 --sharding_strategy NO_SHARD \
    --config_json "$shapes/l8b.json"
grep -Eq '^  of the (machine|control group) +[0-9.]+ TiB   of .*, all its ranks: does not fit$' printed || fail "no line: $(cat printed)"
"$trimtab" plan --max length --device h200 --config_json "$shapes/tiny.json" >"$folder/out" || fail "all positions"
grep -q '^the largest that fits: --sequence_length 2048; the model has no more positions$' "$folder/out" ||
    fail "the positions do not end the search"
"$trimtab" plan --max batch --json --device l4 --config_json "$shapes/l8b.json" "${nf4[@]}" >"$folder/json" ||
    fail "--json --max"
for part in '"largest": {"of": "batch", "value": [1-9]' '"bounded": false' '"trainable_params": [1-9]' \
    '"all_params": 8' '"headroom_bytes": [0-9]'; do
    grep -q "$part" "$folder/json" || fail "--json has no $part"
done

# One table: a row for each combination, each with the memory that its own plan has.
rows() {
    "$trimtab" plan --config_json "$shapes/l8b.json" --sequence_length 4096 --compare "$1" \
        >"$folder/out" 2>"$folder/err" ||
        fail "$1: $(cat "$folder/err")"
    tail -n +2 "$folder/out" | wc -l
}
[ "$(rows 'device=h200,b200,rtx4090 ranks=1,2 sharding_strategy=FULL_SHARD,NO_SHARD recompute=block,cheap')" = 24 ] ||
    fail "not every combination has a row"
for device in h200 h200-nvl h100 h100-nvl b200 a100-80gb a100-40gb l40s l4 a5000 rtx5090 rtx4090 rtx3090; do
    rows "device=$device per_device_train_batch_size=2" >"$folder/count"
    need=$("$trimtab" plan --config_json "$shapes/l8b.json" --sequence_length 4096 --device $device \
        --per_device_train_batch_size 2 | sed -nE 's/^ +in all +([0-9.]+ [KMGi]+B).*/\1/p')
    tail -n 1 "$folder/out" | grep -qF " $need " || fail "$device: the row of the table is not the plan's $need"
done
expect 2 "compare: 'ranks' is not KEY=VALUE" plan --config_json "$shapes/tiny.json" --compare ranks
expect 2 "--units, --compare and --max exclude each other: give one of them" plan --config_json "$shapes/tiny.json" --compare ranks=1 --units
expect 2 "there is no setting 'tentacles'" plan --config_json "$shapes/tiny.json" --compare tentacles=1,2
expect 2 "--json does not go together with --units, --compare and --details" plan --config_json "$shapes/tiny.json" --units --json

# Units: the bytes of the tensors are the unit's, those of the units the model's; a tied tensor counts once.
units() {
    "$trimtab" plan --units "$@" >"$folder/units" || fail "--units $*"
    awk '/^unit /{ if (NR > 1 && sum != want) exit 1; want = $(NF - 1); sum = 0; all += want }
        /^  /{ sum += $(NF - 1) }
        / units, /{ if (sum != want || all != $3) exit 1; ended = 1 } END { if (!ended) exit 1 }' \
        "$folder/units" || fail "the bytes of the units do not add up" "$(cat "$folder/units")"
}
units --config_json "$shapes/tiny.json" "${nf4[@]}"
grep -Eq 'q_proj.weight +nf4 .* frozen$' "$folder/units" || fail "no quantized tensor"
grep -Eq 'lora_A.weight +F32 .* trainable$' "$folder/units" || fail "no trainable tensor"
units --task detection --trainable_layers 3
grep -Eq 'backbone.body.conv1.weight +F32 +64 x 3 x 7 x 7 .* frozen$' "$folder/units" || fail "no frozen convolution"
grep -Eq 'cls_logits.weight +F32 +819 x 256 x 3 x 3 +7547904 +trainable$' "$folder/units" || fail "no classifier"
grep -q '^trainable params: 33,792,599 ' "$folder/units" || fail "other counts: $(tail -n 1 "$folder/units")"

# Between machines with a slow network the network is named, and a strategy that avoids it is proposed; that strategy's
# own plan has no such line.
slow=(--device h200 --num_machines 2 --ranks 8 --config_json "$shapes/m11b.json" --sequence_length 4096
    --per_device_train_batch_size 4 --lora_r 8 --network_bandwidth 1.25GB --details)
"$trimtab" plan "${slow[@]}" --unsharded_blocks 0 >"$folder/out" || fail "--details"
grep -q 'bounded by the network between machines' "$folder/out" || fail "the network is not named"
grep -q 'faster: --sharding_strategy SHARD_GRAD_OP' "$folder/out" ||
    fail "SHARD_GRAD_OP is not proposed:" "$(tail -n 4 "$folder/out")"
"$trimtab" plan "${slow[@]}" --unsharded_blocks 0 --device_memory 90GiB >"$folder/out" || fail "--details with less memory"
grep -q 'faster: --sharding_strategy HYBRID_SHARD' "$folder/out" ||
    fail "HYBRID_SHARD is not proposed:" "$(tail -n 4 "$folder/out")"
grep -Eq 'trainable params: [1-9][0-9]* of 1074[0-9]*, 0.04' "$folder/out" || fail "parameters are not counted"
"$trimtab" plan "${slow[@]}" --sharding_strategy HYBRID_SHARD >"$folder/out" || fail "HYBRID_SHARD"
grep -q 'bounded\|faster' "$folder/out" && fail "HYBRID_SHARD is slow:" "$(tail -n 4 "$folder/out")"
# Of images too: the strategy, the parameters, the table.
"$trimtab" plan --task detection --device h200 --ranks 8 --num_machines 2 --network_bandwidth 1.25GB --details >"$folder/out" ||
    fail "--details of a detector"
grep -q 'trainable params: 34014999 of 34121239' "$folder/out" || fail "parameters of a detector: $(cat "$folder/out")"
grep -q 'images/s a rank' "$folder/out" && ! grep -q 'tokens' "$folder/out" || fail "tokens of images: $(cat "$folder/out")"
"$trimtab" plan --task detection --compare 'device=h200,l4' >"$folder/out" || fail "--compare of a detector"
head -n 1 "$folder/out" | grep -q 'images/s' || fail "the table has tokens: $(cat "$folder/out")"
finish
