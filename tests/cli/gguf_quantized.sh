#!/bin/bash
# GGUF files of quantized tensors against what llama.cpp's quantizer makes of the same models.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
python3 "$root/tests/golden/gguf/quantized.py" "$trimtab" || fail "differences from llama.cpp's files"
finish
