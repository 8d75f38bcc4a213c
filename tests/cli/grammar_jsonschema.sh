#!/usr/bin/env bash
# Texts by the masks of random schemas are valid by jsonschema, where Python has it.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
python3 -c 'import jsonschema' 2>/dev/null || { echo "skipped: no jsonschema"; exit 77; }
TT_GRAMMAR_SCHEMAS=400 TT_GRAMMAR_LINES="$PWD/lines.jsonl" "$build/tests/test_unit_grammar_random_schemas" || fail "the schemas"
python3 "$root/tests/tools/check_schemas.py" lines.jsonl || fail "texts that are not valid"
finish
