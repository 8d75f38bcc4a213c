#!/bin/bash
# GGUF files of every family against what llama.cpp's converter makes of the same folders, and what is refused.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
python3 "$root/tests/golden/gguf/families.py" "$trimtab" || fail "differences from the converter's files"
finish
