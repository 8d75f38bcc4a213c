#!/usr/bin/env bash
# A training whose loss is finite and rises says so at the step that shows it, and at its end; a usual one never does.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
train() { # CODE TEXT RATE words...
    expect "$1" "$2" train --model_name_or_path "$root/examples/demo/model" --dataset_name "$root/examples/demo/data/train.jsonl" \
        --max_train_samples 60 --max_length 64 --per_device_train_batch_size 2 --report_to none --save_strategy no --logging_steps 5 \
        --output_dir out --overwrite_output_dir --learning_rate "$3" "${@:4}"
}
train 0 'done: 30 steps' 1e-3 --max_steps 30
! grep -q diverge err || fail "a usual training diverges: $(cat err)"
# Few steps: some processors' runs come below that again later.
train 0 'worse than guessing (7.155), after 5.4' 100 --max_steps 12
line() { grep -n "$1" err | head -n 1 | cut -d: -f1; }
[ "$(grep -c ': the training diverges: the mean loss of the last 10 steps is' err)" = 1 ] || fail "not one warning: $(cat err)"
[ "$(line 'the training diverges')" -lt "$(line '^step 12/12')" ] || fail "the warning is late: $(cat err)"
[ "$(line 'the result is of a training that has diverged since step 10: its mean loss is')" -gt "$(line '^step 12/12')" ] ||
    fail "nothing at the end: $(cat err)"
finish
