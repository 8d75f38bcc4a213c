#!/usr/bin/env bash
# aux_loss, the loss that balances experts, in the log: one value on any number of ranks, the mean over micro batches and over
# the steps of a row, also of a resumed run; none where it is off. Its values: tests/golden/training_curves.c.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
goldens=$root/tests/golden/dense
run() { # NAME flags...
    expect 0 "" train --output_dir "$1" --model_name_or_path "$goldens/qwen3_moe/model" --dataset_name "$goldens/train.jsonl" \
        --learning_rate 0.01 --report_to none --threads 1 --bf16 false --max_length 128 --lora_target_modules q_proj --lora_dropout 0 \
        --logging_steps 1 --save_strategy no --max_steps 4 "${@:2}"
}
values() { grep -o '"aux_loss": [0-9.e+-]*' "$1/metrics.jsonl" | cut -d' ' -f2; }
near() { # WHAT A B: columns of numbers that are equal to 1e-5
    paste "$2" "$3" | awk '{ if (NF != 2 || $1 - $2 > 1e-5 * $1 || $2 - $1 > 1e-5 * $1) bad = 1 } END { exit bad || NR == 0 }' ||
        fail "$1:" "$(paste "$2" "$3")"
}
run one --per_device_train_batch_size 4
values one >one.txt
[ "$(wc -l <one.txt)" = 4 ] || fail "not every row has aux_loss:" "$(cat one/metrics.jsonl)"
run two --ranks 2 --per_device_train_batch_size 2
values two >two.txt
near "two ranks have another aux_loss" one.txt two.txt

# Rows of two steps have the mean of both, and a run that goes on between the steps of a row has the same.
awk 'NR % 2 { a = $1; next } { print (a + $1) / 2 }' OFMT=%.10g one.txt >means.txt
run rows --per_device_train_batch_size 4 --logging_steps 2
values rows >rows.txt
near "a row of two steps has no mean" means.txt rows.txt
run again --per_device_train_batch_size 4 --logging_steps 2 --save_strategy steps --save_steps 1
rm -r again/checkpoint-2 again/checkpoint-3 again/checkpoint-4
run again --per_device_train_batch_size 4 --logging_steps 2 --save_strategy steps --save_steps 1 --resume_from_checkpoint true
values again | tail -n 2 >again.txt
near "a resumed run has another aux_loss" means.txt again.txt

# Micro batches: those of a step of one row each, whose mean is that of the same rows as steps without accumulation.
run micro --per_device_train_batch_size 1 --gradient_accumulation_steps 2 --max_steps 1
run apart --per_device_train_batch_size 1 --learning_rate 1e-9 --max_steps 2
values micro >micro.txt
values apart | awk '{ sum += $1 } END { print sum / NR }' OFMT=%.10g >apart.txt
near "micro batches have no mean" micro.txt apart.txt

run off --router_aux_loss_coef 0
[ -z "$(values off)" ] || fail "aux_loss is in the log of a run without it"
run dense --model_name_or_path "$goldens/glm4/model" --max_steps 1
[ -z "$(values dense)" ] || fail "a model without experts has aux_loss"
finish
