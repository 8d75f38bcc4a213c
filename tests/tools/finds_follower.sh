# Sourced after command_line.sh by tests of installations.
# finds_follower PROGRAM FILE: a training of the installed program starts the follower of a tracker from FILE.
finds_follower() {
    printf '#!/bin/sh\nprintf "%%s\\n" "$@" >"%s"\n' "$folder/arguments" >only_notes
    chmod +x only_notes
    TRIMTAB_PYTHON=$folder/only_notes "$1" train --model_name_or_path "$root/examples/demo/model" --max_steps 1 --max_length 128 \
        --dataset_name "$root/examples/demo/data/train.jsonl" --output_dir tracked --report_to swanlab --ranks 1 --threads 2 \
        >log 2>&1 || fail "with a tracker: $(tail -n 3 log)"
    local file
    file=$(sed -n 2p arguments 2>/dev/null)
    [ "$(head -n 1 arguments)" = -I ] && cmp "$file" "$root/src/run/python/tracker.py" && [ "$file" -ef "$2" ] ||
        fail "the follower of a tracker: ${file:-none}, wanted $2: $(grep -E 'swanlab|tracker' log)"
}
