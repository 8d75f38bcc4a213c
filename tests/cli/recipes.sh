#!/bin/bash
# Configurations of other trainers as they are published (tests/recipes): each trains on a tiny model, as it is or
# converted, or ends with one error that names every key that is not served; without these keys it trains. Only names of
# models and data are replaced.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
unset LOCAL_RANK SLURM_STEP_ID OMPI_COMM_WORLD_SIZE PMI_SIZE PMIX_RANK
recipes=$root/tests/recipes

# A model with the special tokens that the templates write.
cp -r "$root/tests/golden/qwen2/model" model && cp "$root"/tests/support/tiny_tokenizer/* model/ && chmod -R u+w model
sed -i 's/"max_position_embeddings": [0-9]*/"max_position_embeddings": 1024/' model/config.json
awk -v names='<|im_start|> <|im_end|> <|start_header_id|> <|end_header_id|> <|eot_id|> <start_of_turn> <end_of_turn>' '
    /"added_tokens": \[/ { print; count = split(names, name, " ")
        for (i = 1; i <= count; i++)
            printf "{\"id\": %d, \"content\": \"%s\", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, " \
                   "\"normalized\": false, \"special\": true},\n", 258 + i, name[i]
        next } { print }' model/tokenizer.json >tokenizer.json && mv tokenizer.json model/
printf '{"chat_template": "%s", "bos_token": "<s>", "eos_token": "</s>"}' \
    "{% for m in messages %}{{ '<|im_start|>' + m.role + m.content + '<|im_end|>' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant' }}{% endif %}" \
    >model/tokenizer_config.json

# Rows of each form.
mkdir chats pairs data
for i in $(seq 30); do
    echo "{\"instruction\": \"Add one.\", \"input\": \"$i\", \"output\": \"$((i + 1))\"}" >>alpaca.jsonl
    echo "{\"messages\": [{\"role\": \"user\", \"content\": \"$i + 1?\"}, {\"role\": \"assistant\", \"content\": \"$((i + 1))\"}]}" >>messages.jsonl
    echo "{\"conversations\": [{\"from\": \"system\", \"value\": \"Sums.\"}, {\"from\": \"human\", \"value\": \"$i + 1?\"}, {\"from\": \"gpt\", \"value\": \"$((i + 1))\"}]}" >>sharegpt.jsonl
    echo "{\"conversation\": [{\"role\": \"user\", \"content\": \"$i + 1?\"}], \"chosen\": {\"role\": \"assistant\", \"content\": \"$((i + 1))\"}, \"rejected\": {\"role\": \"assistant\", \"content\": \"many\"}}" >>preferences.jsonl
    echo "{\"prompt\": \"$i + 1 =\", \"chosen\": \" $((i + 1))\", \"rejected\": \" many\"}" >>pairs/train.jsonl
    echo "{\"text\": \"$i + 1 = $((i + 1))\"}" >>text.jsonl
done
cp messages.jsonl chats/train.jsonl && head -n 4 messages.jsonl >chats/test.jsonl
head -n 4 pairs/train.jsonl >pairs/test.jsonl
cp alpaca.jsonl data/identity.jsonl && head -n 20 alpaca.jsonl >data/alpaca_en_demo.jsonl
sed 's/"conversation"/"conversations"/' preferences.jsonl >data/dpo_en_demo.jsonl
cat >data/dataset_info.json <<'END'
{"identity": {"file_name": "identity.jsonl"}, "alpaca_en_demo": {"file_name": "alpaca_en_demo.jsonl"},
 "dpo_en_demo": {"file_name": "dpo_en_demo.jsonl", "ranking": true, "formatting": "sharegpt",
                 "columns": {"messages": "conversations", "chosen": "chosen", "rejected": "rejected"}}}
END

# The rows that stand for those of a recipe.
rows_of() {
    case $1 in
    trl/sft* | trl/zephyr-7b-sft*) echo chats ;;
    trl/*dpo* | unsloth/*dpo*) echo pairs ;;
    axolotl/*dpo*) echo preferences.jsonl ;;
    axolotl/*instruct*) echo messages.jsonl ;;
    axolotl/gemma2*) echo sharegpt.jsonl ;;
    axolotl/*) echo alpaca.jsonl ;;
    unsloth/*) echo text.jsonl ;;
    esac
}

# place FILE ROWS TO: the recipe with the names of the tiny model and of the rows.
place() {
    sed -E -e 's/^(base_model|model_name_or_path|model_name|--model_name_or_path)(:? ).*/\1\2model/' \
        -e "s/^( +- path: |--dataset_name ).*/\1$2/" "$1" >"$3"
}

# trains NAME words...: a few steps, and an adapter.
trains() {
    local name=$1
    shift
    expect 0 '' train "$@" --output_dir "out/$name" --max_steps 2 --device cpu --report_to none --push_to_hub false
    [ -e "out/$name/adapter_model.safetensors" ] || fail "$name: no adapter"
}

# The keys of the lines that an error names, in order of the file.
refused_keys() {
    grep -oE "[^ ]*$(basename "$1") line [0-9]+:" err | sed -E 's/.* line ([0-9]+):/\1/' | sort -nu |
        while read -r line; do sed -n "${line}s/:.*//p" "$1"; done | tr '\n' ' ' | sed 's/ $//'
}

objective_of() {
    case $1 in *dpo*) echo dpo ;; *) echo sft ;; esac
}

mkdir out
while IFS= read -r row; do
    file=${row%%: *} wanted=${row#*: }
    name=${file//\//-} given=$(basename "$file")
    place "$recipes/$file" "$(rows_of "$file")" "$given"
    own=()
    case $file in unsloth/* | trl/zephyr*) own=(--dataset_name "$(rows_of "$file")") ;; esac
    case $file in trl/*dpo* | unsloth/*dpo*) own+=(--objective dpo) ;; esac
    case $wanted in
    trains)
        if [ "${file##*.}" = flags ]; then
            mapfile -t words < <(grep -v '^#' "$given" | tr ' ' '\n')
            trains "$name" "${words[@]}" "${own[@]}"
        else
            trains "$name" --config "$given" "${own[@]}"
        fi
        ;;
    'converted: trains')
        expect 2 "trimtab convert-config FILE writes ours" train --config "$given"
        expect 0 '' convert-config "$given" --output "$name.yaml"
        trains "$name" --config "$name.yaml"
        "$trimtab" train --config "$name.yaml" --print_config 2>/dev/null | grep -q "^objective: $(objective_of "$file")" ||
            fail "$file: another objective"
        ;;
    *)
        expect 2 '' train --config "$given" "${own[@]}"
        keys=$(refused_keys "$given")
        [ "$keys" = "$wanted" ] || fail "$file: refuses '$keys', wanted '$wanted':" "$(cat err)"
        awk -v keys=" $wanted " '/^[^ #-]/ { split($0, part, ":"); skip = index(keys, " " part[1] " ") > 0 } !skip' "$given" >rest.yaml
        trains "$name" --config rest.yaml "${own[@]}"
        ;;
    esac
done < <(grep -v '^#' "$recipes/RESULTS")
for file in "$recipes"/*/*; do
    result=$(sed -n "s|^${file#"$recipes/"}: \(converted: \)*||p" "$recipes/RESULTS")
    [ -n "$result" ] || fail "$file has no result"
    [ "$result" = trains ] || result="refused: \`${result// /\`, \`}\`; trains without"
    path=$(sed -n '1s/^# [^ ]* \(.*\) [0-9a-f]\{40\}$/\1/p' "$file")
    grep -F "| \`$path\` |" "$root/docs/recipes.md" | grep -qF "| $result |" || fail "docs/recipes.md says not '$result' of $path"
    [ "$(grep -c '^ *#' "$file")" = 1 ] || fail "$file has comments beside its source"
done
finish
