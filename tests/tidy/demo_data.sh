#!/usr/bin/env bash
# The demo's rows and tokenizer equal the output of their scripts.
set -euo pipefail
command -v python3 >/dev/null || { echo "skipped: there is no python3"; exit 77; }
export PYTHONDONTWRITEBYTECODE=1
demo=$(cd "$(dirname "$0")/../../examples/demo" && pwd)
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
python3 "$demo/make_task.py" --out "$made"
cmp "$made/train.jsonl" "$demo/data/train.jsonl"
cmp "$made/test.jsonl" "$demo/data/test.jsonl"
python3 "$demo/make_corpus.py" --out "$made/corpus.jsonl" --megabytes 9 --seed 1 # the tokenizer looks at 8
python3 "$demo/make_tokenizer.py" --corpus "$made/corpus.jsonl" --out "$made"
cmp "$made/tokenizer.json" "$demo/model/tokenizer.json"
cmp "$made/tokenizer_config.json" "$demo/model/tokenizer_config.json"
