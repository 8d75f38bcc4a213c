#!/usr/bin/env bash
# Sizes, reminders, printing, globals, tests of ops: see tools/tidy.
set -euo pipefail
command -v python3 >/dev/null || { echo "skipped: there is no python3"; exit 77; }
export PYTHONDONTWRITEBYTECODE=1
exec "$(dirname "$0")/../../tools/tidy"
