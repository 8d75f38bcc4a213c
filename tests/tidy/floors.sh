#!/usr/bin/env bash
# Includes between floors: see tools/floors.
set -euo pipefail
command -v python3 >/dev/null || { echo "skipped: there is no python3"; exit 77; }
export PYTHONDONTWRITEBYTECODE=1
exec "$(dirname "$0")/../../tools/floors"
