#!/usr/bin/env bash
# trimtab bench train --device cuda and transformers + PEFT + FSDP2 (hf_gpu_lora.py) on the same shapes and GPUs, in turns.
#
#     bench/peers/run_gpu.sh [--budget SECONDS] [--pairs N] [--steps N] [--warmup N] [case ...]
#
# Cases (default: those that the GPUs here suffice for):
#     m11b        11B, 2 GPUs, 4x4096, r 8 on q,k,v,o: the memory plan chooses / no checkpointing, compiled
#     m11b-block  the same, blocks recomputed / checkpointing, compiled
#     m11b-recipe the same / checkpointing, eager: what recipes run
#     m11b-short  11B, 2 GPUs, rows of 60 to 340 tokens: packed to 4x4096 / padded, compiled
#     l8b         8B, 1 GPU, 2x4096, r 16 / no checkpointing, compiled
#     l8b-short   8B, 1 GPU, rows of 60 to 340 tokens: packed to 2x4096 / padded, compiled
#     l70b        70B, 2 GPUs, 1x2048, r 16 on q,v, blocks recomputed / checkpointing, compiled
#     l1b         1B, 1 GPU, 2x2048, r 16: to try the script
#
# Prints every JSON line of both, and a table last: tokens/s/GPU, peak GB of each one's own allocations, seconds to the end of
# step 1. No run is started after --budget (default 900) seconds, so what stands first is measured first; a second pair runs in
# the other order. TRIMTAB is the program, PYTHON has torch, transformers and peft, PEER is another peer with the same flags
# and fields, SIDES=trimtab or SIDES=peer runs one side only, OUT a folder for the logs.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
trimtab=${TRIMTAB:-$root/build/trimtab} python=${PYTHON:-python3} peer=${PEER:-$root/bench/peers/hf_gpu_lora.py}
sides=${SIDES:-both} out=${OUT:-$(mktemp -d)}
budget=900 pairs=1 steps=6 warmup=3
cases=()
while [ $# -gt 0 ]; do
    case $1 in
    --budget) budget=$2 && shift 2 ;;
    --pairs) pairs=$2 && shift 2 ;;
    --steps) steps=$2 && shift 2 ;;
    --warmup) warmup=$2 && shift 2 ;;
    -*) sed -n '2,25p' "${BASH_SOURCE[0]}" >&2 && exit 2 ;;
    *) cases+=("$1") && shift ;;
    esac
done
mkdir -p "$out"
export NCCL_NVLS_ENABLE=${NCCL_NVLS_ENABLE:-0} # multicast stays off where hosts are shared
gpus=$(nvidia-smi --list-gpus 2>/dev/null | wc -l)
if [ ${#cases[@]} -eq 0 ]; then
    cases=(l8b l8b-short)
    [ "$gpus" -lt 2 ] || cases=(m11b l8b m11b-block l70b m11b-short)
fi

# describe CASE: sets world and both command lines' own flags.
describe() {
    local qkvo='["q_proj", "k_proj", "v_proj", "o_proj"]' names='q_proj,k_proj,v_proj,o_proj'
    local batch seq rank ckpt compile=1
    world=2 ours=() peers=()
    case $1 in
    m11b | m11b-block | m11b-recipe | m11b-short) shape=m11b batch=4 seq=4096 rank=8 ckpt=0 ;;
    l8b | l8b-short) shape=l8b batch=2 seq=4096 rank=16 ckpt=0 world=1 ;;
    l70b) shape=l70b batch=1 seq=2048 rank=16 ckpt=1 qkvo='["q_proj", "v_proj"]' names=q_proj,v_proj ;;
    l1b) shape=l1b batch=2 seq=2048 rank=16 ckpt=0 world=1 ;;
    *) echo "error: there is no case '$1'" >&2 && exit 2 ;;
    esac
    case $1 in
    m11b-block | l70b) ckpt=1 ours+=(--recompute block) ;;
    m11b-recipe) ckpt=1 compile=0 ;;
    *-short)
        ours+=(--row_tokens_min 60 --row_tokens_max 340)
        peers+=(--rows 60 340)
        ;;
    esac
    ours+=(--config_json "$root/bench/shapes/$shape.json" --ranks "$world" --per_device_train_batch_size "$batch"
        --sequence_length "$seq" --lora_r "$rank" --lora_alpha $((2 * rank)) --lora_dropout 0
        --lora_target_modules "$qkvo" --sharding_strategy FULL_SHARD)
    peers+=(--shape "$shape" --bs "$batch" --seq "$seq" --lora-r "$rank" --targets "$names" --ckpt "$ckpt"
        --compile "$compile")
}
left() {
    echo $((budget - SECONDS))
}
# run_side trimtab|peer CASE: appends its JSON line to a file; says how long it took.
run_side() {
    local side=$1 name=$2 begin=$SECONDS limit command
    limit=$(left)
    if [ "$limit" -le 0 ]; then
        echo "$name $side: not run, the budget is spent"
        return
    fi
    if [ "$side" = trimtab ]; then
        command=("$trimtab" bench train --device cuda "${ours[@]}" --steps "$steps" --warmup "$warmup")
    elif [ "$world" -eq 1 ]; then
        command=("$python" "$peer" "${peers[@]}" --steps "$steps" --warmup "$warmup")
    else
        command=("$python" -m torch.distributed.run --standalone --nproc_per_node "$world" "$peer" "${peers[@]}"
            --steps "$steps" --warmup "$warmup")
    fi
    if ! timeout --kill-after=5 "$limit" "${command[@]}" >"$out/$name.$side.out" 2>"$out/$name.$side.err"; then
        echo "$name $side: failed: $(grep -iE 'error|hint' "$out/$name.$side.err" | tail -n 3 | tr '\n' ' ' | cut -c1-600)"
    fi
    grep '^{' "$out/$name.$side.out" | tail -n 1 | tee -a "$out/$name.$side.json"
    echo "$name $side: $((SECONDS - begin)) s, $(left) s left"
}

: >"$out/cases"
for name in "${cases[@]}"; do
    describe "$name"
    if [ "$gpus" -gt 0 ] && [ "$world" -gt "$gpus" ]; then
        echo "$name: not run, it needs $world GPUs"
        continue
    fi
    rm -f "$out/$name".*.json
    echo "$name $world" >>"$out/cases"
    for pair in $(seq "$pairs"); do
        order=(trimtab peer)
        [ $((pair % 2)) -eq 1 ] || order=(peer trimtab)
        for side in "${order[@]}"; do
            [ "$sides" != both ] && [ "$sides" != "$side" ] || run_side "$side" "$name"
        done
    done
done

"$python" - "$out" <<'END'
import json
import pathlib
import statistics
import sys

out = pathlib.Path(sys.argv[1])


def lines(name, side):
    path = out / f"{name}.{side}.json"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def median(rows, value):
    return statistics.median(value(row) for row in rows) if rows else None


def text(value, form):
    return format(value, form) if value is not None else "-"


def ratio(a, b):
    return text(a / b if a and b else None, ".3f")


print(f"\n{'case':12s} {'GPUs':>4s} | {'tokens/s/GPU':>12s} {'peer':>8s} {'ratio':>6s} | {'peak GB':>8s} {'peer':>8s} "
      f"{'ratio':>6s} {'used GB':>8s} | {'step 1 s':>8s} {'peer':>6s} | recompute")
for case in (out / "cases").read_text().splitlines():
    name, world = case.split()
    ours, peers = lines(name, "trimtab"), lines(name, "peer")
    if ours and peers and "trained_parameters" in peers[0] and peers[0]["trained_parameters"] != ours[0]["trainable_params"]:
        # Under FSDP2 a rank counts whole tensors, so these must agree.
        print(f"{name}: not the same parameters are trained: {ours[0]['trainable_params']} and "
              f"{peers[0]['trained_parameters']}")
    rate, peer_rate = median(ours, lambda r: r["tokens_per_second"] / int(world)), median(peers, lambda r: r["tok_s_gpu"])
    peak, peer_peak = median(ours, lambda r: r["device_peak_bytes"] / 1e9), median(peers, lambda r: r["peak_gb"])
    used = median(ours, lambda r: r.get("device_used_bytes", 0) / 1e9)
    first, peer_first = median(ours, lambda r: r["first_step_seconds"]), median(peers, lambda r: r["first_step_s"])
    print(f"{name:12s} {world:>4s} | {text(rate, '12.0f'):>12s} {text(peer_rate, '8.0f'):>8s} {ratio(rate, peer_rate):>6s} | "
          f"{text(peak, '8.2f'):>8s} {text(peer_peak, '8.2f'):>8s} {ratio(peak, peer_peak):>6s} {text(used, '8.2f'):>8s} | "
          f"{text(first, '8.2f'):>8s} {text(peer_first, '6.1f'):>6s} | {ours[0].get('recompute', '-') if ours else '-'}")
END
