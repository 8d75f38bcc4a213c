#!/usr/bin/env bash
# --log_format json: every line of standard error is an object with time, level, rank and event; and the termination
# message of a pod.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
cp -r "$root/tests/golden/qwen2/model" model && cp "$root"/tests/support/tiny_tokenizer/* model/ && chmod -R u+w model
for i in $(seq 16); do echo "{\"prompt\": \"$i + 1 =\", \"completion\": \" $((i + 1))\"}"; done >rows.jsonl
train=(train --model_name_or_path model --dataset_name rows.jsonl --bf16 false --max_steps 2 --logging_steps 1 --report_to none)

# check FILE CODE: evaluates a Python condition over `lines`, the parsed objects.
check() {
    python3 - "$1" "$2" <<'END' || fail "$1: not so: $2:" "$(cat "$1")"
import datetime, json, sys
def refuse(word): raise ValueError(word)
lines = [json.loads(line, parse_constant=refuse) for line in open(sys.argv[1])]
for line in lines:
    datetime.datetime.strptime(line["ts"], "%Y-%m-%dT%H:%M:%S.%fZ")
    assert line["level"] in ("info", "notice", "warning", "error") and isinstance(line["rank"], int) and line["event"]
sys.exit(not eval(sys.argv[2]))
END
}

# A training: rows with numbers, the summary, nothing else on standard error.
expect 0 '' "${train[@]}" --output_dir out --eval_strategy steps --eval_steps 2 --eval_split_size 4 --log_format json
check err '[line["step"] for line in lines if line["event"] == "log"] == [1, 2]'
check err 'all(line["fields"]["loss"] > 0 and line["max_steps"] == 2 for line in lines if line["event"] == "log")'
check err 'any(line["event"] == "evaluation" and line["fields"]["eval_loss"] > 0 for line in lines)'
check err 'lines[-1]["event"] == "end" and lines[-1]["steps"] == 2 and lines[-1]["output"] == "out"'
check err 'any(line["event"] == "message" and "training data" in line["message"] for line in lines)'
grep -q "$(printf '\033')" err && fail "an escape sequence in JSON lines"

# From a file of settings and from the environment; text overrides them. It is no part of the saved settings.
echo 'log_format: json' >json.yaml
expect 0 '' "${train[@]}" --output_dir out2 --config json.yaml
check err 'lines[-1]["event"] == "end"'
TRIMTAB_LOG_FORMAT=json expect 0 '' "${train[@]}" --output_dir out3
check err 'lines[-1]["event"] == "end"'
TRIMTAB_LOG_FORMAT=json expect 0 'done: 2 steps' "${train[@]}" --output_dir out4 --log_format text
grep -q log_format out2/trimtab_config.yaml && fail "log_format is saved with the run"

# Errors: of words, of files, with hint and exit code; results on standard output stay as they are.
"$trimtab" "${train[@]}" --log_format json --learning_rat 1 >printed 2>err
[ $? -eq 2 ] || fail "another exit code for an unknown setting"
check err '[(line["event"], line["exit_code"]) for line in lines] == [("error", 2)] and "learning_rate" in lines[0]["hint"]'
"$trimtab" "${train[@]}" --log_format=json --output_dir out5 --dataset_name nowhere.jsonl >printed 2>err
[ $? -eq 3 ] || fail "another exit code for a missing file"
check err 'lines[-1]["level"] == "error" and lines[-1]["status"] == "DATA" and "nowhere.jsonl" in lines[-1]["message"]'
expect 2 "log_format" "${train[@]}" --output_dir out6 --log_format xml

# Control characters of files stay escaped.
printf '{"text": "x\\u001b[31m"}\n' >escape.jsonl && mv escape.jsonl "$(printf 'a\033b.jsonl')"
"$trimtab" "${train[@]}" --log_format json --output_dir out7 --dataset_name "$(printf 'a\033b')" >printed 2>err
check err 'lines[-1]["event"] == "error"'

# The termination message: the text of the error in an existing regular file, and no other.
export TRIMTAB_TERMINATION_LOG=$folder/termination
expect 3 'nowhere.jsonl' "${train[@]}" --output_dir out8 --dataset_name nowhere.jsonl
[ -e termination ] && fail "a termination log was created"
head -c 9000 /dev/zero >termination
expect 3 'nowhere.jsonl' "${train[@]}" --output_dir out9 --dataset_name nowhere.jsonl
[ "$(cat termination)" = "$(grep -A9 '^error:' err)" ] || fail "the termination log is not the error:" "$(head -c 500 termination)"
: >other && rm termination && ln -s other termination
expect 3 'nowhere.jsonl' "${train[@]}" --output_dir out10 --dataset_name nowhere.jsonl
[ -s other ] && fail "the termination log follows a link"
rm termination && : >termination
expect 0 '' "${train[@]}" --output_dir out11
[ -s termination ] && fail "a run without an error left a termination message"
finish
