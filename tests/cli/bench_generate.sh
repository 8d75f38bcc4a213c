#!/bin/bash
# trimtab bench generate: its fields; the tokens do not depend on how many rows run at a time, also where they are drawn,
# on the ranks, on what they split, and on who starts them; the plan is what is used; wrong settings.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
measure() {
    "$trimtab" bench generate --config_json "$root/bench/shapes/tiny.json" --device cpu --threads 1 --bf16 false \
        --prompt_tokens 6 --new_tokens 5 --rows 5 "$@"
}
number() {
    grep -o "\"$2\": [0-9.e+-]*" <<<"$1" | cut -d' ' -f2
}
for drawn in 0 1.3; do
    one=$(measure --per_device_train_batch_size 1 --temperature $drawn)
    three=$(measure --per_device_train_batch_size 3 --temperature $drawn)
    [ "$(number "$one" sum)" = "$(number "$three" sum)" ] || fail "other tokens: $one $three"
    sums+=" $(number "$one" sum)"
done
read -r greedy random <<<"$sums"
[ "$greedy" != "$random" ] || fail "nothing was drawn"
[ "$(number "$three" rows)" = 5 ] && [ "$(number "$three" batch)" = 3 ] || fail "$three"
[ "$(number "$one" passes)" = 25 ] || fail "25 tokens one at a time: $one"
for field in tokens_per_second decode_tokens_per_second prompt_tokens_per_second seconds device_peak_bytes; do
    awk "BEGIN { exit !($(number "$three" $field) > 0) }" || fail "$field: $three"
done
# Adapters that rows have in turn: one pass for all of them. They begin with a B of zeros, so the tokens are the base's.
mixed=$(measure --per_device_train_batch_size 5 --adapters 3 --adapter_rank 4)
[ "$(number "$mixed" passes)" = 5 ] && [ "$(number "$mixed" sum)" = "$greedy" ] || fail "three adapters: $mixed"
[ "$(number "$mixed" planned_bytes)" = "$(number "$mixed" device_peak_bytes)" ] || fail "three adapters: planned and used differ: $mixed"
[ "$(number "$mixed" planned_bytes)" -gt "$(number "$(measure --per_device_train_batch_size 5)" planned_bytes)" ] || fail "adapters without memory"
code=0
measure --new_tokens 100000 >said 2>&1 || code=$?
[ $code = 2 ] && grep -q "more than the model's" said || fail "exit $code: $(cat said)"

# Ranks: whole models where they fit, else shards; in every format of the base.
[ "$(number "$one" ranks)" = 1 ] && grep -q '"sharding_strategy": "NO_SHARD"' <<<"$one" || fail "one rank: $one"
[ "$(number "$one" recorded_passes)" = 0 ] || fail "recorded passes of a processor: $one"
planned_is_used() {
    [ "$(number "$1" planned_bytes)" = "$(number "$1" device_peak_bytes)" ] || fail "$2: planned and used differ: $1"
}
for base in '' '--load_in_4bit true --bnb_4bit_use_double_quant true' '--load_in_8bit true'; do
    # shellcheck disable=SC2086
    one=$(measure $base --per_device_train_batch_size 2)
    planned_is_used "$one" "one rank, $base"
    for strategy in NO_SHARD FULL_SHARD; do
        # shellcheck disable=SC2086
        several=$(measure $base --per_device_train_batch_size 2 --ranks 2 --sharding_strategy $strategy)
        [ "$(number "$several" sum)" = "$(number "$one" sum)" ] || fail "2 ranks, $strategy, $base: other tokens: $several"
        [ "$(number "$several" ranks)" = 2 ] && grep -q "\"$strategy\"" <<<"$several" || fail "$several"
        [ "$(number "$several" passes)" = 10 ] || fail "5 rows on 4 places are not 10 passes: $several"
        planned_is_used "$several" "2 ranks, $strategy, $base"
    done
done
[ "$(number "$(measure --ranks 3 --rows 0 --per_device_train_batch_size 2)" rows)" = 6 ] || fail "not 2 rows for each of 3 ranks"
limit=$(number "$(measure --ranks 2 --sharding_strategy FULL_SHARD --per_device_train_batch_size 1)" planned_bytes)
split=$(measure --ranks 2 --device_memory "$limit" --per_device_train_batch_size 1)
grep -q '"FULL_SHARD"' <<<"$split" || fail "no shards where a whole model does not fit: $split"
code=0
measure --device_memory "$limit" --per_device_train_batch_size 1 >said 2>&1 || code=$?
[ $code = 4 ] && grep -q 'this run needs' said || fail "exit $code: $(cat said)"

# Two processes of a launcher: rank 0 alone prints.
one=$(measure --per_device_train_batch_size 2)
export MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + RANDOM % 12000)) WORLD_SIZE=2 LOCAL_WORLD_SIZE=2
RANK=1 LOCAL_RANK=1 measure --sharding_strategy FULL_SHARD --per_device_train_batch_size 2 >other 2>err1 &
second=$!
several=$(RANK=0 LOCAL_RANK=0 measure --sharding_strategy FULL_SHARD --per_device_train_batch_size 2 2>err) ||
    fail "rank 0: $(cat err)"
wait $second || fail "rank 1: $(cat err1)"
unset MASTER_ADDR MASTER_PORT WORLD_SIZE LOCAL_WORLD_SIZE
[ "$(number "$several" sum)" = "$(number "$one" sum)" ] || fail "two processes: other tokens: $several"
[ ! -s other ] || fail "rank 1 prints: $(cat other)"
finish
