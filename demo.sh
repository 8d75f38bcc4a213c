#!/usr/bin/env bash
# Trimtab's main use, with the model and the rows of this repository, on a fresh Debian 12 or 13: installs missing
# packages, builds, trains a LoRA adapter for the small model in examples/demo on 2 sharded ranks, and shows its
# completions before and after for rows that were not trained on.
#
#     ./demo.sh
#
# TRIMTAB=path uses an existing program; DEMO_OUT=folder is the folder of the results (build/demo). The last line is
# one JSON object. Exit code 0: exact match rose from under 5 % to over 90 %.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$root"
out=${DEMO_OUT:-$root/build/demo}
trimtab=${TRIMTAB:-$root/build/trimtab}
if [ -z "${TRIMTAB:-}" ]; then
    tools/install-dependencies.sh build
    tools/build.sh "$root/build" "-DCMAKE_BUILD_TYPE=Release" trimtab
fi
model=examples/demo/model
held_out=examples/demo/data/test.jsonl
adapter=$out/adapter
mkdir -p "$out"
started=$(date +%s%N)
say() { printf '\n== %s\n' "$*"; }

# number FILE KEY: a number of the JSON object in FILE.
number() {
    sed -n "s/.*\"$2\": *\([-+0-9.eE]*\).*/\1/p" "$1"
}
# completions FILE: prints the completion of each JSON line, on one line each.
completions() {
    sed -e 's/.*"completion": *"//; s/"[^"]*$//; s/\\"/"/g; s/\\n/ ⏎ /g' "$1"
}
evaluate() {
    "$trimtab" eval --model_name_or_path $model --eval_dataset $held_out --max_length 256 \
        --per_device_eval_batch_size 25 --exact_match true --max_new_tokens 64 --json true "$@"
}
generate() {
    "$trimtab" generate --model_name_or_path $model --prompt_file "$out/prompts.jsonl" --max_new_tokens 64 \
        --json true "$@"
}

say "The base model on $(wc -l <$held_out) held-out rows"
head -n 3 $held_out >"$out/prompts.jsonl"
evaluate >"$out/before.json"
generate >"$out/before.jsonl"

say "LoRA fine-tuning, FULL_SHARD over 2 ranks: trimtab train --config examples/demo/sft.yaml"
"$trimtab" train --config examples/demo/sft.yaml --output_dir "$adapter"

say "The same rows with the adapter"
evaluate --adapter_name_or_path "$adapter" >"$out/after.json"
generate --adapter_name_or_path "$adapter" >"$out/after.jsonl"

loss_before=$(number "$out/before.json" loss)
loss_after=$(number "$out/after.json" loss)
match_before=$(number "$out/before.json" exact_match)
match_after=$(number "$out/after.json" exact_match)
printf '\n%-24s %12s %12s\n' "held-out rows" before after
printf '%-24s %12.4f %12.4f\n' "loss" "$loss_before" "$loss_after"
printf '%-24s %11.1f%% %11.1f%%\n' "exact match" \
    "$(awk "BEGIN { print 100 * $match_before }")" "$(awk "BEGIN { print 100 * $match_after }")"
paste -d '\n' <(sed -e 's/.*"prompt": *"//; s/\\n".*//; s/\\"/"/g' "$out/prompts.jsonl") \
    <(completions "$out/before.jsonl") <(completions "$out/after.jsonl") |
    awk 'NR % 3 == 1 { print "\nprompt  " $0 } NR % 3 == 2 { print "before  " $0 } NR % 3 == 0 { print "after   " $0 }'
printf '\nThe adapter is a PEFT folder: %s\n' "$adapter"

seconds=$(awk "BEGIN { printf \"%.1f\", ($(date +%s%N) - $started) / 1e9 }")
verdict=$(awk "BEGIN { print ($match_before < 0.05 && $match_after > 0.9) ? \"ok\" : \"failed\" }")
printf '{"demo": "%s", "eval_loss_before": %s, "eval_loss_after": %s, "exact_match_before": %s, ' \
    "$verdict" "$loss_before" "$loss_after" "$match_before"
printf '"exact_match_after": %s, "adapter": "%s", "seconds": %s}\n' "$match_after" "$adapter" "$seconds"
[ "$verdict" = ok ]
