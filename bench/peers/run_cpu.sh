#!/usr/bin/env bash
# trimtab bench train and transformers + PEFT (hf_cpu_lora.py) on the same shape, threads and batch, in pairs of
# alternating order, so that changes of the machine's speed affect both.
#
#     PYTHON=venv/bin/python bench/peers/run_cpu.sh --config bench/shapes/q05b.json --threads 2 --pairs 3
#
# Prints every JSON line of both as it comes and a last one with the medians and ratios: tokens per second, trimtab / peer
# (above 1: trimtab is faster), and peak bytes, trimtab / peer (below 1: trimtab takes less). PYTHON has torch,
# transformers and peft (default python3); TRIMTAB is the program (default build/trimtab); CPUS is a list for taskset, such
# as 0,1 (default: no pinning). To hold both to fewer instructions than the processor has: TRIMTAB_CPU_ISA=avx512_bf16 and
# ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16, or TRIMTAB_CPU_ISA=avx2 and ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2
# MKL_ENABLE_INSTRUCTIONS=AVX2; the peer's bf16 is emulated there, so that --peer-dtype fp32 is the fair opponent.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
python=${PYTHON:-python3} trimtab=${TRIMTAB:-$root/build/trimtab}
config=$root/bench/shapes/q05b.json
batch=4 seq=512 rank=16 threads=$(nproc) steps=5 warmup=1 pairs=3 dtype=bf16 peer_dtype="" attention=sdpa checkpointing=none

usage() {
    cat >&2 <<'END'
usage: run_cpu.sh [--config FILE] [--batch N] [--seq N] [--lora-r N] [--threads N] [--steps N] [--warmup N] [--pairs N]
                  [--dtype bf16|fp32] [--peer-dtype bf16|fp32] [--peer-attention sdpa|eager]
                  [--gradient-checkpointing none|both|trimtab|peer]
END
    exit 2
}
while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || usage
    case $1 in
    --config) config=$2 ;;
    --batch) batch=$2 ;;
    --seq) seq=$2 ;;
    --lora-r) rank=$2 ;;
    --threads) threads=$2 ;;
    --steps) steps=$2 ;;
    --warmup) warmup=$2 ;;
    --pairs) pairs=$2 ;;
    --dtype) dtype=$2 ;;
    --peer-dtype) peer_dtype=$2 ;;
    --peer-attention) attention=$2 ;;
    --gradient-checkpointing) checkpointing=$2 ;;
    *) usage ;;
    esac
    shift 2
done
case $dtype in bf16 | fp32) ;; *) usage ;; esac
case ${peer_dtype:=$dtype} in bf16 | fp32) ;; *) usage ;; esac
case $checkpointing in none | both | trimtab | peer) ;; *) usage ;; esac
[ "$pairs" -ge 1 ] || usage
pin=()
[ -z "${CPUS:-}" ] || pin=(taskset --cpu-list "$CPUS")
export OMP_NUM_THREADS=$threads
lines=$(mktemp -d)
trap 'rm -rf "$lines"' EXIT

run_trimtab() {
    local bf16=false recompute=false
    [ "$dtype" = fp32 ] || bf16=true
    case $checkpointing in both | trimtab) recompute=true ;; esac
    "${pin[@]}" "$trimtab" bench train --device cpu --config_json "$config" --per_device_train_batch_size "$batch" \
        --sequence_length "$seq" --lora_r "$rank" --lora_alpha $((2 * rank)) --lora_dropout 0 \
        --lora_target_modules all-linear --bf16 $bf16 --gradient_checkpointing $recompute --ranks 1 \
        --threads "$threads" --steps "$steps" --warmup "$warmup" | tee -a "$lines/trimtab"
}
run_peer() {
    local recompute=()
    case $checkpointing in both | peer) recompute=(--gradient-checkpointing) ;; esac
    "${pin[@]}" "$python" "$root/bench/peers/hf_cpu_lora.py" --config-json "$config" --batch "$batch" --seq "$seq" \
        --lora-r "$rank" --threads "$threads" --dtype "$peer_dtype" --attention "$attention" --steps "$steps" --warmup "$warmup" \
        "${recompute[@]}" | tee -a "$lines/peer"
}

for pair in $(seq "$pairs"); do
    if [ $((pair % 2)) -eq 1 ]; then
        run_trimtab
        run_peer
    else
        run_peer
        run_trimtab
    fi
done

"$python" - "$lines/trimtab" "$lines/peer" <<'END'
import json
import platform
import statistics
import sys

ours, peers = ([json.loads(line) for line in open(path)] for path in sys.argv[1:])
if any(line["trained_parameters"] != ours[0]["trainable_params"] for line in peers):
    sys.exit("error: the two do not train the same parameters: "
             f"{ours[0]['trainable_params']} and {peers[0]['trained_parameters']}")


def compare(key):
    ratios = [a[key] / b[key] for a, b in zip(ours, peers)]
    digits = None if key == "peak_bytes" else 2
    return {
        "trimtab": round(statistics.median(line[key] for line in ours), digits),
        "peer": round(statistics.median(line[key] for line in peers), digits),
        "ratio": round(statistics.median(ratios), 3),
        "ratio_of_each_pair": [round(ratio, 3) for ratio in ratios],
    }


def processor():
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


print(json.dumps({
    "compared": "trimtab / transformers+peft", "config": peers[0]["config"], "pairs": len(ours),
    "tokens_per_second": compare("tokens_per_second"), "peak_bytes": compare("peak_bytes"),
    "first_step_seconds": compare("first_step_seconds"), "threads": peers[0]["threads"], "processor": processor(),
    "cpu_capability": peers[0]["cpu_capability"], "versions": peers[0]["versions"],
}))
END
