#!/usr/bin/env bash
# Copies NVIDIA's libraries that the plugin opens, without the driver's, into one folder: cuBLASLt, cuDNN, NCCL, NVRTC.
# deploy/image.sh makes the second layer of an image for GPUs of them.
#
#     deploy/nvidia.sh FOLDER[:FOLDER...] TARGET
#
# The first FOLDER that has a library wins: those of a CUDA installation, or of NVIDIA's wheels (.../nvidia/*/lib).
set -euo pipefail
# shellcheck source=deploy/closure.sh
source "$(dirname "${BASH_SOURCE[0]}")/closure.sh"
[ $# -eq 2 ] || { sed -n '2,7p' "${BASH_SOURCE[0]}" >&2; exit 2; }
mapfile -t found < <(nvidia_libraries "$1")
mkdir -p "$2"
for library in "${found[@]}"; do install -m 644 "$library" "$2/"; done
for pattern in "${nvidia_patterns[@]}"; do
    [ -n "$(find "$2" -regextype egrep -regex ".*/$pattern" -print -quit)" ] || fail "$pattern is in none of $1"
done
