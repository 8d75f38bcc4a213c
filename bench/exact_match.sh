#!/usr/bin/env bash
# Time of `trimtab eval --exact_match`: rows whose prompts have 100 tokens and whose answers have 200, on a model with random
# weights, whose end token hardly ever comes. Prints the evaluation, with the seconds of loading, loss and answers together.
#
#     bench/exact_match.sh [TRIMTAB [CONFIG.json [ROWS [WORDS...]]]]
#
# WORDS: more settings of the evaluation, such as --device cuda.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
trimtab=$(realpath "${1:-$root/build/trimtab}") config=$(realpath "${2:-$root/bench/shapes/s135m.json}") rows=${3:-1319}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
mkdir shape
cp "$config" shape/config.json
cp "$root"/tests/support/tiny_tokenizer/* shape/
for ((i = 0; i < rows; i++)); do
    printf '{"prompt": "%-99s", "completion": " %d"}\n' "The number of this row, which nobody asks for, is $i" "$i"
done >rows.jsonl
# The weights: a training that begins with random ones and hardly changes them.
"$trimtab" train --init random --model_name_or_path shape --dataset_name rows.jsonl --use_peft false --max_steps 1 --learning_rate 1e-9 \
    --max_length 128 --per_device_train_batch_size 1 --ranks 1 --report_to none --save_strategy no --output_dir model >said 2>&1 ||
    { tail -n 5 said >&2; exit 1; }
began=$(date +%s%N)
"$trimtab" eval --model_name_or_path model --eval_dataset rows.jsonl --max_length 128 --exact_match --max_new_tokens 200 "${@:4}"
printf '%d rows, at most 200 new tokens each: %.1f s in all\n' "$rows" "$(($(date +%s%N) - began))e-9"
