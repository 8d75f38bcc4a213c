#!/usr/bin/env bash
# dataset_prepared_path: the rows of a cache train the same weights; whatever changes rows makes them again; a damaged
# file, a folder that cannot be written, a killed or a second process never end or change a run.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
cp -r "$root/tests/golden/qwen2/model" model && cp "$root"/tests/support/tiny_tokenizer/* model/ && chmod -R u+w model
for i in $(seq 40); do echo "{\"prompt\": \"$i + 1 =\", \"completion\": \" $((i + 1))\"}"; done >all.jsonl
train=(train --model_name_or_path model --max_steps 2 --report_to none --lora_dropout 0 --save_strategy no)
plain=("${train[@]}" --dataset_name all.jsonl --overwrite_output_dir --output_dir out)
kept=("${plain[@]}" --dataset_prepared_path kept)

# same HIT|MADE words...: the run trains the weights of a run without cache, and the log says which it was
same() {
    local wanted=$1
    shift
    expect 0 'done: 2 steps' "$@"
    grep -q 'tokenized rows from' err && got=HIT || got=MADE
    [ $got = "$wanted" ] || fail "$got instead of $wanted: $* :" "$(cat err)"
    cmp -s out/adapter_model.safetensors "${reference:-plain}/adapter_model.safetensors" || fail "$wanted: other weights: $*"
}
expect 0 'done: 2 steps' "${plain[@]}" && cp -r out plain
same MADE "${kept[@]}"
same HIT "${kept[@]}"
expect 0 'tokenized rows from' "${kept[@]}" --ranks 2
[ -z "$(find kept -type f ! -name '*.rows')" ] || fail "something else is left in the cache: $(ls kept)"

# What changes rows makes another file, or the same one again.
expect 0 'done: 2 steps' "${plain[@]}" --max_length 11 && cp -r out short
reference=short same MADE "${kept[@]}" --max_length 11
reference=short same HIT "${kept[@]}" --max_length 11
same HIT "${kept[@]}"
expect 0 '12 rows' "${kept[@]}" --max_train_samples 12
grep -q 'tokenized rows from' err && fail "other rows come from the file of all"
expect 0 '' "${kept[@]}" --completion_only_loss false
grep -q 'tokenized rows from' err && fail "other labels come from the file"
touch all.jsonl
same MADE "${kept[@]}"
sed -i 's/^{"prompt": "1 +/{"prompt": "3 +/' all.jsonl
expect 0 'done: 2 steps' "${plain[@]}" && cp -r out edited
reference=edited same MADE "${kept[@]}"
grep -q 'was made from other rows, another tokenizer or other settings; the rows are tokenized again' err ||
    fail "no line about changed rows:" "$(cat err)"
cp model/tokenizer_config.json before.json
sed -i 's/{/{"another": 1,/' model/tokenizer_config.json
reference=edited same MADE "${kept[@]}"
cp before.json model/tokenizer_config.json
reference=edited same HIT "${kept[@]}"
rm -rf plain && mv edited plain && rm -r kept

# Evaluation, mixtures, and what trimtab data shows, are the same from a cache.
mixture=(--datasets '[{"path": "all.jsonl", "weight": 1.5}]' --eval_strategy steps --eval_dataset all.jsonl)
data=(data --model_name_or_path model "${mixture[@]}" --json --rows 100)
figures() { sed -E 's/"seconds": [^,}]*//g'; }
expect 0 '' "${data[@]}" && figures <printed >shown
for run in 1 2; do
    expect 0 '' "${data[@]}" --dataset_prepared_path kept
    figures <printed | cmp -s - shown || fail "trimtab data shows other rows from a cache, run $run"
done
[ "$(grep -c 'tokenized rows from' err)" -eq 2 ] || fail "not both sets come from the cache:" "$(cat err)"
expect 0 'eval_loss' "${train[@]}" --overwrite_output_dir --output_dir out "${mixture[@]}"
grep -o "'eval_loss': [^,]*" err >losses
expect 0 'tokenized rows from' "${train[@]}" --overwrite_output_dir --output_dir out "${mixture[@]}" --dataset_prepared_path kept
grep -o "'eval_loss': [^,]*" err | cmp -s - losses || fail "another eval loss from a cache"
expect 0 '' "${kept[@]}" --eval_strategy steps --eval_split_size 4
rm -r kept

# Damage: in the header, the tables, at the end, and nothing at all.
same MADE "${kept[@]}"
file=$(echo kept/*.rows)
bytes=$(stat -c %s "$file")
cp "$file" whole
for at in 3 20 70 130 $((bytes - 1)); do
    printf '\377' | dd of="$file" bs=1 seek="$at" conv=notrunc status=none
    same MADE "${kept[@]}"
    grep -q 'the rows are tokenized again' err || fail "no line about damage at byte $at"
done
for length in 0 100 $((bytes / 2)) $((bytes - 64)); do
    truncate -s "$length" "$file"
    same MADE "${kept[@]}"
done
cp "$root/README.md" "$file"
same MADE "${kept[@]}"
cmp -s whole "$file" || fail "the file that is made again is another one"
# Those of another version.
for rows in "$root"/tests/golden/older/prepared/*.rows; do
    cp "$rows" "$file"
    same MADE "${kept[@]}"
    [ "$(grep -cF "'$file' is of another version of trimtab; the rows are tokenized again" err)" -eq 1 ] ||
        fail "not one line about another version: $(cat err)"
    cmp -s whole "$file" || fail "the file that is made anew is another one"
done
# In a token: found when it is used, with the file to remove.
offset=$((($(grep -obUa 'file 0 ' "$file" | tail -n 1 | cut -d: -f1) / 64 + 4) * 64 + 256))
printf '\007' | dd of="$file" bs=1 seek=$offset conv=notrunc status=none
expect 3 'are damaged' "${kept[@]}"
rm "$file"

# A folder that cannot be used costs a line. A file in its place, and a disk that fails at each change.
echo >inplace
same MADE "${plain[@]}" --dataset_prepared_path inplace
grep -q 'the tokenized rows are not kept for other runs' err || fail "no line about a folder that is a file"
data=(data --model_name_or_path model --dataset_name all.jsonl --rows 100)
expect 0 '' "${data[@]}" && grep -v ^reading printed >shown
for nth in $(seq 1 3 40); do
    TRIMTAB_FILE_FAULT="$nth 28 1" "$trimtab" "${data[@]}" --dataset_prepared_path full >printed 2>err ||
        fail "a full disk at change $nth ends the command:" "$(cat err)"
    grep -v ^reading printed | cmp -s - shown || fail "a full disk at change $nth changes rows"
    [ -n "$(find full -name '*.rows' 2>/dev/null)" ] && break
    grep -q 'not kept for other runs' err || fail "no line about a full disk at change $nth:" "$(cat err)"
done
[ "$nth" -gt 10 ] && [ "$nth" -lt 40 ] || fail "a cache takes $nth changes"
# Killed at each change, with what is left: the next run writes it.
for nth in $(seq 2 3 40); do
    rm -rf killed
    _=$(TRIMTAB_FILE_FAULT="$nth 0 1" "$trimtab" "${data[@]}" --dataset_prepared_path killed 2>&1) && break
    expect 0 '' "${data[@]}" --dataset_prepared_path killed
    grep -v ^reading printed | cmp -s - shown || fail "killed at change $nth: other rows afterwards"
    [ -n "$(find killed -name '*.rows')" ] || fail "killed at change $nth: the next run writes no file"
done
expect 0 'tokenized rows from' "${data[@]}" --dataset_prepared_path full
[ "$nth" -gt 10 ] && [ "$nth" -lt 40 ] || fail "a killed cache takes $nth changes"

# Several at once: one writes, all have the same.
for i in 1 2 3 4; do
    "$trimtab" "${data[@]}" --dataset_prepared_path shared >shown.$i 2>err.$i &
done
wait
for i in 1 2 3 4; do grep -v ^reading shown.$i | cmp -s - shown || fail "process $i of 4 has other rows:" "$(cat err.$i)"; done
[ "$(find shared -type f | wc -l)" -eq 1 ] || fail "several processes leave $(ls shared)"

# A template that prints the date of the start has rows of one run only.
echo '{"messages": [{"role": "user", "content": "1 + 1 ="}, {"role": "assistant", "content": " 2"}]}' >chat.jsonl
echo "{{ strftime_now('%Y') }}{% for m in messages %}{{ m.content }}{% endfor %}" >dated.jinja
chat=(data --model_name_or_path model --dataset_name chat.jsonl --chat_template_path dated.jinja --dataset_prepared_path dated)
expect 0 'are not kept for others' "${chat[@]}"
expect 0 'sample 1' "${chat[@]}" --date 2024-07-26
expect 0 'tokenized rows from' "${chat[@]}" --date 2024-07-26
expect 0 'sample 1' "${chat[@]}" --date 2025-07-26
grep -q 'tokenized rows from' err && fail "the rows of another date"
echo "{{ strftime_now('%Y') }} {% for m in messages %}{{ m.content }}{% endfor %}" >dated.jinja
expect 0 'sample 1' "${chat[@]}" --date 2024-07-26
grep -q 'tokenized rows from' err && fail "the rows of another template"
finish
