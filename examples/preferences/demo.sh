#!/usr/bin/env bash
# Direct preference optimization in less than a minute on two processors: makes pairs of answers of which the prompt says
# which one is preferred, trains a LoRA adapter for the small model of examples/demo on two sharded ranks, and counts how
# often log p prefers the chosen answer of held-out pairs, before and after.
#
#     examples/preferences/demo.sh
#
# TRIMTAB=path is the program (build/trimtab); DEMO_OUT=folder is the folder of the results (build/preferences-demo). The
# last line is one JSON object. Exit code 0: the chosen answer was preferred in at most 60 % of the pairs, and then in at
# least 90 %.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
out=${DEMO_OUT:-$root/build/preferences-demo}
trimtab=${TRIMTAB:-$root/build/trimtab}
mkdir -p "$out"
out=$(cd "$out" && pwd)
cd "$root"
started=$(date +%s%N)
say() { printf '\n== %s\n' "$*"; }

# number FILE KEY: a number of the JSON object in FILE.
number() {
    sed -n "s/.*\"${2//\//\\/}\": *\([-+0-9.eE]*\).*/\1/p" "$1"
}
# Without a reference the rewards are log p itself: that is cpo's way to count.
evaluate() {
    "$trimtab" eval --objective cpo --model_name_or_path examples/demo/model --eval_dataset "$out/pairs/test.jsonl" \
        --max_length 256 --json true "$@"
}

say "Pairs of answers, and what the base model prefers"
python3 "$here/make_pairs.py" "$out/pairs"
head -n 2 "$out/pairs/test.jsonl"
evaluate >"$out/before.json"

say "DPO, FULL_SHARD over 2 ranks: trimtab train --config examples/preferences/dpo.yaml"
"$trimtab" train --config examples/preferences/dpo.yaml --dataset_name "$out/pairs/train.jsonl" \
    --output_dir "$out/adapter" --overwrite_output_dir true

say "The same pairs with the adapter"
evaluate --adapter_name_or_path "$out/adapter" >"$out/after.json"

before=$(number "$out/before.json" rewards/accuracies)
after=$(number "$out/after.json" rewards/accuracies)
printf '\n%-36s %10s %10s\n' "held-out pairs" before after
printf '%-36s %9.1f%% %9.1f%%\n' "chosen answer has the larger log p" \
    "$(awk "BEGIN { print 100 * $before }")" "$(awk "BEGIN { print 100 * $after }")"
for key in logps/chosen logps/rejected; do
    printf '%-36s %10.2f %10.2f\n' "$key" "$(number "$out/before.json" $key)" "$(number "$out/after.json" $key)"
done
printf '\nThe adapter is a PEFT folder: %s\n' "$out/adapter"

seconds=$(awk "BEGIN { printf \"%.1f\", ($(date +%s%N) - $started) / 1e9 }")
verdict=$(awk "BEGIN { print ($before <= 0.6 && $after >= 0.9) ? \"ok\" : \"failed\" }")
printf '{"demo": "%s", "preferred_before": %s, "preferred_after": %s, "adapter": "%s", "seconds": %s}\n' \
    "$verdict" "$before" "$after" "$out/adapter" "$seconds"
[ "$verdict" = ok ]
