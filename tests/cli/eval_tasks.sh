#!/usr/bin/env bash
# trimtab eval --tasks: likelihoods, texts, accuracies and exact matches are those that lm-evaluation-harness has for the
# same items and the same model (tests/golden/task_items), item by item; over ranks; wrong items.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
cp -r "$root/tests/golden/llama3/model" model && cp "$root"/tests/support/tiny_tokenizer/* model/ && chmod -R u+w model
golden=$root/tests/golden/task_items
tasks=(eval --model_name_or_path model --bf16 false)
expect 0 "" "${tasks[@]}" --tasks "$golden/items.jsonl" --task_results results.jsonl --json
cp printed totals.json
expect 0 "" "${tasks[@]}" --tasks "$golden/items.jsonl" --task_results ranks.jsonl --ranks 2
cp printed table
cmp results.jsonl ranks.jsonl || fail "two ranks have other results"
grep -qE '^choices +12  acc  +0\.[0-9]+ +0\.[0-9]+$' table || fail "the table:" "$(cat table)"
if command -v python3 >/dev/null; then
    python3 - "$golden/scores.jsonl" <<'END' || fail "other scores than lm-evaluation-harness"
import json, sys
*wanted, totals = map(json.loads, open(sys.argv[1]))
got = [json.loads(line) for line in open("results.jsonl")]
assert len(got) == len(wanted) > 40
for mine, theirs in zip(got, wanted):
    for key, value in theirs.items():
        if key == "log_likelihoods":
            assert len(value) == len(mine[key]) and all(abs(a - b) < 1e-4 for a, b in zip(mine[key], value)), (mine, theirs)
        else:
            assert mine[key] == value, (key, mine, theirs)
tasks = {task["task"]: task for task in json.load(open("totals.json"))}
for name, metrics in totals["totals"].items():
    for metric, value in metrics.items():
        if not metric.endswith("_stderr"):
            mine = tasks[name]["metrics"][metric]["value"]
            assert abs(mine - value) < 1e-6 * max(1, abs(value)) or metric == "perplexity" and abs(mine / value - 1) < 1e-3, (name, metric, mine, value)
        elif value:
            assert abs(tasks[name]["metrics"][metric[:-7]]["stderr"] - value) < 1e-9, (name, metric)
for task in tasks.values():
    assert 0 < next(iter(task["metrics"].values()))["value"] < 1, ("proves nothing", task)
END
fi

# The context is what the end stands behind: white space, an empty context, a choice by its text.
cat >items.jsonl <<'END'
{"context": "abc", "choices": ["d", "ee"], "answer": "ee", "delimiter": ""}

{"context": "", "target": "abc"}
{"task": "x", "context": "abc", "target": "q", "max_tokens": 3, "regex": "(.)$", "match": -1, "strip": true}
END
expect 0 "" "${tasks[@]}" --tasks items.jsonl --task_results small.jsonl
[ "$(wc -l <small.jsonl)" = 3 ] || fail "three items:" "$(cat small.jsonl)"
# wrong CODE TEXT ITEM
wrong() {
    printf '%s\n' '{"context": "a", "target": "b"}' "$3" >wrong.jsonl
    expect "$1" "$2" "${tasks[@]}" --tasks wrong.jsonl
    grep -q 'wrong.jsonl line 2' err || fail "no line in the error:" "$(cat err)"
}
wrong 3 "an item must be a JSON object" '[]'
wrong 3 "'context' must be a text" '{"target": "b"}'
wrong 3 "'target' must be a text" '{"context": "a"}'
wrong 3 "'choices' must be a list of at least 2 texts" '{"context": "a", "choices": ["x"], "answer": 0}'
wrong 3 "each of 'choices' must be a text" '{"context": "a", "choices": ["x", 5], "answer": 0}'
wrong 3 "'answer' must be one of 'choices'" '{"context": "a", "choices": ["x", "y"], "answer": 2}'
wrong 3 "'answer' must be one of 'choices'" '{"context": "a", "choices": ["x", "y"], "answer": "z"}'
wrong 3 "'until' must be a text" '{"context": "a", "target": "x", "until": [5]}'
wrong 3 "'max_tokens' must be a number" '{"context": "a", "target": "x", "max_tokens": 0}'
wrong 3 "'match' must be" '{"context": "a", "target": "x", "max_tokens": 1, "match": -2}'
wrong 3 "'context' must not be empty" '{"context": "", "target": "x", "max_tokens": 1}'
wrong 3 "the end of the context has no token of its own" '{"context": "a", "target": "", "delimiter": ""}'
printf '{"context": "a", "target": "x", "max_tokens": 1, "regex": "("}\n' >items.jsonl
expect 3 "the regular expression is wrong" "${tasks[@]}" --tasks items.jsonl
: >items.jsonl
expect 3 "has no items" "${tasks[@]}" --tasks items.jsonl
finish
