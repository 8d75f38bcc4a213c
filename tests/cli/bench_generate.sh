#!/bin/bash
# trimtab bench generate: its fields; the tokens do not depend on how many rows run at a time, also where they are drawn;
# wrong settings.
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
code=0
measure --new_tokens 100000 >said 2>&1 || code=$?
[ $code = 2 ] && grep -q "more than the model's" said || fail "exit $code: $(cat said)"
code=0
measure --ranks 2 >said 2>&1 || code=$?
[ $code = 2 ] && grep -q "measures one rank, not 2" said || fail "exit $code: $(cat said)"
finish
