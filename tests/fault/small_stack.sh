#!/usr/bin/env bash
# The program works whatever `ulimit -s` says: its own threads have stacks of their own size, and so has its main thread.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
cp -r "$root/tests/golden/qwen2/model" model && cp "$root"/tests/support/tiny_tokenizer/* model/ && chmod -R u+w model
for i in $(seq 8); do echo "{\"prompt\": \"$i + 1 =\", \"completion\": \" $((i + 1))\"}"; done >rows.jsonl
run=(train --model_name_or_path model --dataset_name rows.jsonl --report_to none --learning_rate 1e-3)

# limited KIB CODE 'text' words...: without a shell between, which would itself need more stack.
limited() {
    local kib=$1 code=$2 text=$3 got=0
    shift 3
    (ulimit -s "$kib" && exec "$trimtab" "$@" >printed 2>err </dev/null) || got=$?
    [ $got -eq "$code" ] && cat printed err | grep -qF -- "$text" || fail "ulimit -s $kib, $*: exit code $got: $(tail -n 3 err)"
}
if ! (ulimit -s 32 && exec true); then # the loader, the arguments and the environment use it before main
    echo "skipped: no program starts with a stack of 32 KiB"
    exit 77
fi
expect 0 'done: 4 steps' "${run[@]}" --max_steps 4 --output_dir usual
for kib in 32 64 224 1000; do
    limited $kib 0 'done: 4 steps' "${run[@]}" --max_steps 4 --output_dir "out$kib"
    cmp usual/adapter_model.safetensors "out$kib/adapter_model.safetensors" || fail "ulimit -s $kib: other weights"
done
limited 32 0 'done: 4 steps' "${run[@]}" --max_steps 4 --ranks 2 --output_dir ranks
limited 64 0 '' generate --model_name_or_path model --prompt '1 + 1 =' --max_new_tokens 4 --threads 2
limited 64 2 "there is no setting 'nothing'" train --nothing 1

# A signal still ends the step and saves.
(ulimit -s 64 && exec "$trimtab" "${run[@]}" --max_steps 1000000 --save_strategy no --output_dir stopped >printed 2>err </dev/null) &
for _ in $(seq 600); do grep -q '^step' err 2>/dev/null && break || sleep 0.1; done
kill -TERM $!
wait $! && code=0 || code=$?
[ $code -eq 11 ] || fail "a signal: exit code $code: $(tail -n 3 err)"
finish
