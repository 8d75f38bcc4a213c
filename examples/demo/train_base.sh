#!/usr/bin/env bash
# Makes everything in model/ and data/ again: corpus, tokenizer, base weights, task rows.
#
#     examples/demo/train_base.sh [trimtab]      (default: build/trimtab)
#
# Trimtab itself trains the base, all weights, from random ones: 8 packs of 512 tokens a step, one pass over the
# corpus (about 14 million tokens). WORK is the folder of corpus and run (build/demo-base), MEGABYTES the size of
# the corpus. RANKS (1, 2, 4 or 8) share the packs of a step; the result depends on them by rounding only.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
trimtab=${1:-$root/build/trimtab}
work=${WORK:-$root/build/demo-base}
processors=$(nproc)
ranks=${RANKS:-$((processors >= 8 ? 8 : processors >= 4 ? 4 : processors >= 2 ? 2 : 1))}
mkdir -p "$work"

python3 "$here/make_corpus.py" --out "$work/corpus.jsonl" --megabytes "${MEGABYTES:-40}" --seed 1
python3 "$here/make_tokenizer.py" --corpus "$work/corpus.jsonl" --out "$here/model"
python3 "$here/make_task.py" --out "$here/data"

"$trimtab" train --init random --use_peft false --model_name_or_path "$here/model" \
    --dataset_name "$work/corpus.jsonl" --output_dir "$work/run" --overwrite_output_dir true \
    --ranks "$ranks" --sharding_strategy NO_SHARD --per_device_train_batch_size $((8 / ranks)) \
    --packing true --max_length 512 --over_length drop --num_train_epochs 1 \
    --learning_rate 1.5e-3 --lr_scheduler_type cosine --warmup_steps 100 --adam_beta2 0.98 --weight_decay 0.1 \
    --gradient_checkpointing false --logging_steps 50 --save_strategy no --seed 1

cp "$work/run/model.safetensors" "$here/model/model.safetensors"
ls -l "$here/model/model.safetensors"
