#!/usr/bin/env bash
# generate, chat and exact match over ranks: tokens equal those of one rank, whatever the strategy, the format of the
# base and the launcher; the plan is what the ranks take; whole models where they fit, else shards; errors and a stop
# reach every process.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
model=$folder/model
cp -r "$root/tests/golden/llama3/model" model && cp "$root"/tests/support/tiny_tokenizer/* model/ && chmod -R u+w model
adapter=$root/tests/golden/llama3/adapter_random
printf '%s\n' 'a b c' 'hello' 'xyz' 'foo bar' 'q' 'a b d' 'zz' >prompts.txt
settings=(--model_name_or_path "$model" --max_new_tokens 12)

# complete FILE flags...: completions of the prompts.
complete() {
    "$trimtab" generate "${settings[@]}" --prompt_file prompts.txt "${@:2}" >"$1" 2>err ||
        fail "generate ${*:2} -> exit $?:" "$(cat err)"
}
check() {
    cmp -s "$1" "$2" || fail "$3: other tokens than one rank's:" "$(diff "$1" "$2" | head -4)"
}
for base in '--bf16 false' '--load_in_4bit true --bnb_4bit_quant_type nf4' '--load_in_8bit true'; do
    # shellcheck disable=SC2086
    complete one $base --adapter_name_or_path "$adapter"
    [ "$(wc -l <one)" -eq 7 ] || fail "not 7 completions"
    for ranks in 2 4; do
        for strategy in FULL_SHARD NO_SHARD; do
            # shellcheck disable=SC2086
            complete several $base --adapter_name_or_path "$adapter" --ranks $ranks --sharding_strategy $strategy
            check one several "$base, $ranks ranks, $strategy"
        done
    done
done
complete drawn --bf16 false --temperature 0.9 --seed 7
complete several --bf16 false --temperature 0.9 --seed 7 --ranks 3 --batch_size 1
check drawn several "drawn tokens, 3 ranks, one prompt at a time"
complete one --bf16 false

# The plan, line by line, is what was used; without a strategy each rank holds all where that fits, and else a part.
total() { awk -v column="$1" '/^  in all/ && NF == 6 { print column == 1 ? $3 $4 : $5 $6 }' err; }
sed -i 's/"num_hidden_layers": [0-9]*/"num_hidden_layers": 12/; s/"max_position_embeddings": [0-9]*/"max_position_embeddings": 512/' model/config.json
printf '{"text": "abcdefgh"}\n%.0s' {1..4} >rows.jsonl
"$trimtab" train --model_name_or_path "$model" --init random --use_peft false --dataset_name rows.jsonl --max_steps 1 \
    --output_dir deep --report_to none >printed 2>err || fail "no deep model:" "$(tail -3 err)"
settings=(--model_name_or_path "$folder/deep" --max_new_tokens 12 --bf16 false --stats)
complete one
[ -n "$(total 1)" ] && [ "$(total 1)" = "$(total 2)" ] || fail "planned and used differ:" "$(cat err)"
whole=$(awk '/^  in all/ && NF == 4 { print $3 $4; exit }' err)
grep -Eq '7 completions, 84 new tokens in [0-9.]+ s: [0-9.]+ tokens/s' err || fail "no speed:" "$(cat err)"
complete several --ranks 4
check one several "12 layers, 4 ranks"
grep -q 'each rank holds the whole model' err || fail "not whole models:" "$(cat err)"
complete several --ranks 4 --sharding_strategy FULL_SHARD
check one several "12 layers, 4 shards"
[ -n "$(total 1)" ] && [ "$(total 1)" = "$(total 2)" ] || fail "shards: planned and used differ:" "$(cat err)"
shard=$(total 1)
limit=$((${shard%KiB} + 1))KiB
[ "$shard" != "$whole" ] || fail "a shard takes what a model takes: $shard"
complete several --ranks 4 --device_memory "$limit"
check one several "12 layers, 4 ranks with the memory of a shard"
grep -q 'the ranks split the model' err || fail "no shards where a model does not fit:" "$(cat err)"
expect 4 'needs' generate "${settings[@]}" --prompt abc --device_memory "$limit"
settings=(--model_name_or_path "$model" --max_new_tokens 12)
cp "$root/tests/golden/llama3/model/config.json" model/

# Two processes of a launcher; only rank 0 has prompts and prints.
port() { echo $((20000 + RANDOM % 20000)); }
# processes CODE words...: both end with CODE; output of rank 0 in printed, of rank 1 in other.
processes() {
    local code=$1 got=0 late=0 at
    shift
    at=$(port)
    export MASTER_ADDR=127.0.0.1 MASTER_PORT=$at WORLD_SIZE=2 LOCAL_WORLD_SIZE=2
    RANK=1 LOCAL_RANK=1 timeout 120 "$trimtab" "$@" </dev/null >other 2>err1 &
    RANK=0 LOCAL_RANK=0 timeout 120 "$trimtab" "$@" >printed 2>err || got=$?
    wait $! || late=$?
    unset MASTER_ADDR MASTER_PORT WORLD_SIZE LOCAL_WORLD_SIZE
    [ $got -eq "$code" ] && [ $late -eq "$code" ] || fail "trimtab $* -> $got and $late:" "$(cat err err1)"
    [ ! -s other ] || fail "rank 1 prints: $(cat other)"
}
complete one --bf16 false
processes 0 generate "${settings[@]}" --bf16 false <prompts.txt
check one printed "two processes"
processes 0 generate "${settings[@]}" --bf16 false --sharding_strategy FULL_SHARD <prompts.txt
check one printed "two processes with a half each"
processes 2 generate "${settings[@]}" </dev/null
grep -q 'there is no prompt' err || fail "no prompt:" "$(cat err)"
grep -q 'rank 0 failed: there is no prompt' err1 || fail "rank 1 does not say why:" "$(cat err1)"
processes 3 generate "${settings[@]}" <<<"{\"prompt\": 1}"

cat >chat.jinja <<'END'
{% for m in messages %}{{ '<' + m.role + '> ' + m.content + '</s>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<assistant> ' }}{% endif %}
END
printf '%s\n' abc '/adapter off' def '/adapter on' ghi >talk.txt
talk=(chat "${settings[@]}" --bf16 false --adapter_name_or_path "$adapter" --chat_template_path chat.jinja)
"$trimtab" "${talk[@]}" <talk.txt >one 2>err || fail "chat:" "$(cat err)"
"$trimtab" "${talk[@]}" --ranks 3 --sharding_strategy FULL_SHARD <talk.txt >several 2>err || fail "chat, 3 ranks:" "$(cat err)"
check one several "chat over 3 ranks"
processes 0 "${talk[@]}" <talk.txt
check one printed "chat over two processes"

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
complete one --bf16 false
if ! command -v mpirun >/dev/null; then
    echo "skipped: mpirun: it is not here"
elif ASAN_OPTIONS=detect_leaks=0 mpirun -n 2 "$trimtab" generate "${settings[@]}" --bf16 false <prompts.txt >printed 2>err; then
    check one printed "mpirun"
elif grep -q 'without MPI' err; then
    echo "skipped: mpirun: a build without MPI"
else
    fail "mpirun:" "$(cat err)"
fi

# SIGTERM ends both processes as stopped; what has begun is printed.
sed -i 's/"max_position_embeddings": [0-9]*/"max_position_embeddings": 200000/' model/config.json
at=$(port)
export MASTER_ADDR=127.0.0.1 MASTER_PORT=$at WORLD_SIZE=2 LOCAL_WORLD_SIZE=2
for _ in {1..40}; do cat prompts.txt; done >many.txt
rm -f printed
endless=(generate --model_name_or_path "$model" --ignore_eos --max_new_tokens 1500 --prompt_file many.txt --batch_size 1)
RANK=1 LOCAL_RANK=1 "$trimtab" "${endless[@]}" </dev/null >other 2>err1 &
second=$!
RANK=0 LOCAL_RANK=0 "$trimtab" "${endless[@]}" >printed 2>err &
first=$!
for _ in {1..600}; do [ -s printed ] && break; sleep 0.1; done
kill -TERM $first
code=0 late=0
wait $first || code=$?
wait $second || late=$?
[ $code -eq 11 ] && [ $late -eq 11 ] || fail "SIGTERM -> $code and $late:" "$(cat err err1)"
[ "$(wc -l <printed)" -ge 3 ] || fail "what had begun is lost: $(wc -l <printed) completions"
finish
