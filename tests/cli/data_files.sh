#!/usr/bin/env bash
# Files of rows by folder, pattern, mixture, compression and Parquet: the rows of the plain file, in training and evaluation; and
# what is refused.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
cp -r "$root/tests/golden/qwen2/model" model && cp "$root"/tests/support/tiny_tokenizer/* model/ && chmod -R u+w model
for i in $(seq 20); do echo "{\"prompt\": \"$i + 1 =\", \"completion\": \" $((i + 1))\"}"; done >all.jsonl
train=(train --model_name_or_path model --max_steps 2 --report_to none --lora_dropout 0 --per_device_train_batch_size 4)

expect 0 '20 rows' "${train[@]}" --dataset_name all.jsonl --output_dir plain
gzip -k all.jsonl
expect 0 '20 rows' "${train[@]}" --dataset_name all.jsonl.gz --output_dir packed
cmp plain/adapter_model.safetensors packed/adapter_model.safetensors || fail "a compressed file trains other weights"
mkdir -p shards/data
head -n 7 all.jsonl >shards/data/train-00000-of-00002.jsonl
tail -n 13 all.jsonl | gzip >shards/data/train-00001-of-00002.jsonl.gz
expect 0 '20 rows' "${train[@]}" --dataset_name shards --output_dir sharded
cmp plain/adapter_model.safetensors sharded/adapter_model.safetensors || fail "shards train other weights"
expect 0 '20 rows' "${train[@]}" --dataset_name 'shards/data/*' --output_dir matched
cmp plain/adapter_model.safetensors matched/adapter_model.safetensors || fail "a pattern trains other weights"
expect 0 '20 rows' eval --model_name_or_path model --eval_dataset 'shards/data/*'

# CSV: quoted and plain, compressed, in a folder; what Python's csv writes is what its samples say.
{ echo 'id,prompt,"completion"'; for i in $(seq 20); do echo "$i,\"$i + 1 =\", $((i + 1))"; done; } >all.csv
expect 0 '20 rows' "${train[@]}" --dataset_name all.csv --output_dir commas
cmp plain/adapter_model.safetensors commas/adapter_model.safetensors || fail "a CSV file trains other weights"
mkdir csvs && gzip -c all.csv >csvs/train.csv.gz
expect 0 '20 rows' "${train[@]}" --dataset_name csvs --output_dir commas2
cmp plain/adapter_model.safetensors commas2/adapter_model.safetensors || fail "a compressed CSV file trains other weights"
expect 0 'rows              7' data --model_name_or_path model --rows 0 --dataset_name all.csv --max_train_samples 7
expect 3 "'long.csv', row 2: a row of more than 100 bytes" data --model_name_or_path model --dataset_name long.csv \
    --max_row_size 100 < <(printf 'text\n%0200d\n' 0 >long.csv)
if command -v python3 >/dev/null; then
    python3 - <<'END'
import csv, json, random
random.seed(3)
pieces = ["a", ",", '"', "\n", "\r\n", " ", "é", "日", "\\", "{", "\t", "'", "x;y", '""']
rows = [["".join(random.choices(pieces, k=random.randint(1, 8))) for _ in range(3)] for _ in range(500)]
with open("python.csv", "w", newline="", encoding="utf-8-sig") as file:
    csv.writer(file).writerows([["prompt", 'other, "x"', "completion"], *rows])
with open("python.jsonl", "w") as file:
    for row in rows:
        file.write(json.dumps({"prompt": row[0], "completion": row[2]}) + "\n")
END
    for kind in csv jsonl; do
        "$trimtab" data --model_name_or_path model --dataset_name python.$kind --rows 500 --json 2>log |
            sed 's/"seconds": [^,}]*//; s/"source": [^,}]*//' >python.$kind.out
    done
    grep -q '"rows": 500' python.csv.out || fail "rows of python.csv: $(cat log)"
    cmp python.csv.out python.jsonl.out || fail "a CSV file of Python's has other samples than its rows"
fi

# Parquet, as a file and as the shards of a folder.
golden=$root/tests/golden/parquet
cmp all.jsonl "$golden/sums.jsonl" || fail "the rows of the golden Parquet file are others"
expect 0 '20 rows' "${train[@]}" --dataset_name "$golden/sums-snappy.parquet" --output_dir columns
cmp plain/adapter_model.safetensors columns/adapter_model.safetensors || fail "a Parquet file trains other weights"
mkdir -p columns_set/data
for i in 0 1; do cp "$golden/sums-$i.parquet" "columns_set/data/train-0000$i-of-00002.parquet"; done
expect 0 '20 rows' "${train[@]}" --dataset_name columns_set --output_dir columns2
cmp plain/adapter_model.safetensors columns2/adapter_model.safetensors || fail "Parquet shards train other weights"
head -c 500 "$golden/sums-snappy.parquet" >cut.parquet
expect 3 "'cut.parquet' is cut: its 500 bytes do not end with" "${train[@]}" --dataset_name cut.parquet --output_dir no
expect 3 "row 1 is longer than max_row_size (20)" "${train[@]}" --dataset_name columns_set --output_dir no --max_row_size 20

# Folders of datasets' save_to_disk: one data set for any split, and one with its splits.
for name in saved saved_dict; do
    expect 0 '20 rows' "${train[@]}" --dataset_name "$golden/$name" --output_dir $name
    cmp plain/adapter_model.safetensors $name/adapter_model.safetensors || fail "a saved folder trains other weights"
done
expect 0 '3 rows' eval --model_name_or_path model --dataset_name "$golden/saved_dict"
expect 0 '20 rows' eval --model_name_or_path model --eval_dataset "$golden/saved"
expect 2 'there is no evaluation data' "${train[@]}" --dataset_name "$golden/saved" --output_dir no --eval_strategy steps
cp -r "$golden/saved" broken && chmod -R u+w broken && rm broken/data-00001*
expect 3 "data-00001-of-00002.arrow" "${train[@]}" --dataset_name broken --output_dir no
sed -i 's|data-00001-of|../data-00001-of|' broken/state.json
expect 3 "names '../data-00001-of-00002.arrow', which is no data file beside it" "${train[@]}" --dataset_name broken \
    --output_dir no

expect 0 '27 rows in 37 samples' "${train[@]}" --output_dir mixed \
    --datasets '[{"path": "all.jsonl.gz", "weight": 1.5}, {"path": "shards/data", "data_files": "train-00000*"}]'
# Four samples are to be held out, and each of their copies.
expect 0 '22 rows in 31 samples' "${train[@]}" --output_dir mixed2 --eval_strategy steps --eval_split_size 4 \
    --datasets '[{"path": "all.jsonl.gz", "weight": 1.5}, {"path": "shards/data", "data_files": "train-00000*"}]'
expect 0 '19 rows in 38 samples' "${train[@]}" --output_dir mixed3 --eval_strategy steps --eval_split_size 1 \
    --datasets '[{"path": "all.jsonl.gz", "weight": 2}]'

expect 2 'both given' "${train[@]}" --output_dir no --dataset_name all.jsonl --datasets '[{"path": "all.jsonl"}]'
expect 2 "must be a list" "${train[@]}" --output_dir no --datasets '{"path": "all.jsonl"}'
expect 2 'datasets[0]: weight is 0' "${train[@]}" --output_dir no --datasets '[{"path": "all.jsonl", "weight": 0}]'
expect 2 'is given twice' "${train[@]}" --output_dir no --datasets '[{"path": "all.jsonl"}, {"path": "all.jsonl"}]'
expect 3 "no files of rows for the split 'dev'" "${train[@]}" --output_dir no --datasets '[{"path": "shards", "split": "dev"}]'
expect 3 "no data file matches the pattern 'none*.jsonl'" "${train[@]}" --output_dir no --dataset_name 'none*.jsonl'
head -c 60 all.jsonl.gz >cut.jsonl.gz
expect 3 "'cut.jsonl.gz' cannot be unpacked" "${train[@]}" --output_dir no --dataset_name cut.jsonl.gz
: | gzip >empty.jsonl.gz
expect 3 "'empty.jsonl.gz' has no rows" "${train[@]}" --output_dir no --dataset_name empty.jsonl.gz
(
    export TMPDIR=$folder/missing
    expect 3 'TMPDIR names another folder' "${train[@]}" --output_dir no --dataset_name all.jsonl.gz
    [ $failures -eq 0 ]
) || fail "without a folder for temporary files"
[ ! -e no ] || fail "a refused run leaves its folder"

# A resumed run has all its files again; another one is reported.
expect 0 'done' "${train[@]}" --dataset_name shards --output_dir resumed --save_steps 1
echo '{"prompt": "1 + 1 =", "completion": " 3"}' >>shards/data/train-00000-of-00002.jsonl
rm -r resumed/checkpoint-2
expect 2 'training data was' "${train[@]}" --dataset_name shards --output_dir resumed --resume_from_checkpoint true

# Rows in another encoding, over several lines, or with messages as one text: the error says how to convert them.
data=(data --model_name_or_path model --rows 0)
printf '{"prompt": "caf\xe9", "completion": "a"}\n' >latin.jsonl
expect 3 'hint: the file is not UTF-8: iconv -f WINDOWS-1252' "${data[@]}" --dataset_name latin.jsonl
{ printf '\xff\xfe' && printf '{}\n' | sed 's/./&\x00/g'; } >wide.jsonl
expect 3 'hint: the file is UTF-16: iconv -f UTF-16' "${data[@]}" --dataset_name wide.jsonl
printf '{\n "prompt": "a",\n "completion": "b"\n}\n' >lines.jsonl
expect 3 'hint: each line is one row: jq -c' "${data[@]}" --dataset_name lines.jsonl
printf '{"messages": "[]"}\n' >text.jsonl
expect 3 "'messages' is a text; a list of messages is expected" "${data[@]}" --dataset_name text.jsonl
printf '{"prompt": "a", "chosen": "b", "rejected": "c"}\n' >pairs.jsonl
expect 3 'hint: objectives dpo, orpo and cpo train on preferences; to train on the chosen answers' "${data[@]}" --dataset_name pairs.jsonl
printf '{%% for m in messages %%}{{ m.role + m.content }}{%% endfor %%}' >plain.jinja

# A content of parts: as one text for a template of texts, as it is for one that reads parts; images are refused.
printf '{"messages": [{"role": "user", "content": [{"type": "text", "text": "a", "image": null}, {"type": "text", "text": "b"}]}]}\n' >parts.jsonl
printf '{%% for m in messages %%}{{ m.role }}{%% for p in m.content %%}<{{ p.text }}{{ p.image is defined }}>{%% endfor %%}{%% endfor %%}' >list.jinja
expect 0 '[[userab]]' "${data[@]}" --rows 1 --dataset_name parts.jsonl --chat_template_path plain.jinja
expect 0 '[[user<aFalse><bFalse>]]' "${data[@]}" --rows 1 --dataset_name parts.jsonl --chat_template_path list.jinja
printf '{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image"}]}]}\n' >images.jsonl
expect 2 "'images.jsonl', row 1: messages[0]: part 2 of the content is 'image', and only text is supported" \
    "${data[@]}" --dataset_name images.jsonl --chat_template_path plain.jinja
printf '{"messages": [{"role": "user", "content": [{"type": "json", "json": 1}]}]}\n' >parts.jsonl
expect 3 "hint: message 1 ('user') has a list of parts as its content" "${data[@]}" --dataset_name parts.jsonl \
    --chat_template_path plain.jinja
printf '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": null, "tool_calls": []}]}\n' >calls.jsonl
expect 3 "hint: message 2 ('assistant') has tool calls and no content" "${data[@]}" --dataset_name calls.jsonl \
    --chat_template_path plain.jinja

# Without a split in its names all files of a folder are those of train, as for `datasets`.
head -n 3 all.jsonl >sums.jsonl
mkdir others && cp all.jsonl others/rows.jsonl
expect 0 'rows              20' "${data[@]}" --dataset_name others
python3 -c "import json; print(json.dumps(json.loads(open('all.jsonl').readline()), indent=2))" >others/one.json
expect 0 'rows              21' "${data[@]}" --dataset_name others
rm others/one.json && mv others/rows.jsonl others/rows_valid.jsonl
expect 2 "hint: for files of other names give one of them, or a pattern such as 'others/*.jsonl'" "${data[@]}" --dataset_name others

# A byte order mark before the prompts of a file is none of their text.
{ printf '\xef\xbb\xbf' && head -n 2 all.jsonl; } >marked.jsonl
head -n 2 all.jsonl >unmarked.jsonl
for name in marked unmarked; do
    "$trimtab" generate --model_name_or_path model --prompt_file $name.jsonl --max_new_tokens 2 >$name.out 2>log ||
        fail "prompts of $name.jsonl are refused: $(cat log)"
done
cmp marked.out unmarked.out || fail "a byte order mark changes the prompts"

# One JSON list, as data files may be, has the prompts and conversations of its lines.
{ echo '[' && paste -sd, unmarked.jsonl && echo ']'; } >list.json
"$trimtab" generate --model_name_or_path model --prompt_file list.json --max_new_tokens 2 >list.out 2>log || fail "$(cat log)"
cmp list.out unmarked.out || fail "a list has other prompts than its lines"
printf '[{"role": "user", "content": "a"}]\n{"messages": [{"role": "user", "content": "b"}]}\n' >talks.jsonl
printf '[\n  [{"role": "user", "content": "a"}],\n  {"conversations": [{"from": "user", "value": "b"}]}\n]\n' >talks.json
printf '[\n  {"role": "user",\n   "content": "a"}\n]\n' >talk.json
for name in talks.jsonl talks.json talk.json; do
    "$trimtab" generate --model_name_or_path model --messages $name --chat_template_path plain.jinja --max_new_tokens 2 --json \
        >$name.out 2>log || fail "$name: $(cat log)"
done
cmp talks.jsonl.out talks.json.out || fail "a list has other conversations than its lines"
head -n 1 talks.jsonl.out | cmp - talk.json.out || fail "a conversation over several lines is another"
# Another separator than commas: the hint, wherever the commas in its texts make the error.
for row in '1;3' '1, 2;3'; do
    printf 'prompt;completion\n%s\n' "$row" >semicolons.csv
    expect 3 "sep=';').to_csv('train.csv'" "${data[@]}" --dataset_name semicolons.csv
done

# A source of whose rows none is used is named; one of which nothing is held out has no figures.
expect 0 "warning: no row of 'sums.jsonl' is used: 0.01 times its 3 rows is less than half a row" "${data[@]}" \
    --datasets '[{"path": "all.jsonl"}, {"path": "sums.jsonl", "weight": 0.01}]'
held=(--datasets '[{"path": "all.jsonl", "weight": 3}, {"path": "sums.jsonl"}]' --eval_strategy epoch --eval_split_size 3)
expect 0 '"sources": [{"rows": 19, "samples": 57' "${data[@]}" "${held[@]}" --json
grep -q '"eval": {"rows": 1, "samples": 3' printed || fail "held out rows are counted otherwise:" "$(cat printed)"
expect 0 'evaluation data: 1 rows in 3 samples' "${train[@]}" --output_dir held "${held[@]}" --max_steps 1 --logging_steps 1
grep -qi 'nan' held/metrics.jsonl err && fail "figures of a source without evaluation rows: $(cat held/metrics.jsonl)"

# max_length: null shortens nothing; what the model has no positions for is an error.
expect 0 'rows              20' "${data[@]}" --dataset_name all.jsonl --max_length null
echo "{\"input_ids\": [$(seq -s ', ' 1 257)]}" >long.jsonl
expect 3 "257 tokens are more than the model's 256 positions" "${data[@]}" --dataset_name long.jsonl --max_length null
echo '{"prompt": "a", "completion": [{"role": "assistant", "content": "b"}]}' >kinds.jsonl
expect 3 "'prompt' is a text and 'completion' a list of messages" "${data[@]}" --dataset_name kinds.jsonl
finish
