#!/usr/bin/env bash
# trimtab bench train --device cuda and another side on the same shapes and GPUs, in turns: transformers + PEFT (hf_gpu_lora.py)
# with FSDP2 or over a 4-bit base of bitsandbytes, or trimtab itself in bf16.
#
#     bench/peers/run_gpu.sh [--budget SECONDS] [--limit SECONDS] [--pairs N] [--steps N] [--warmup N] [--tune]
#                            [--dropout P] [case ...]
#
# Cases (default: those without nf4 that the GPUs here suffice for):
#     m11b        11B, 2 GPUs, 4x4096, r 8 on q,k,v,o: the memory plan chooses / no checkpointing, compiled
#     m11b-block  the same, blocks recomputed / checkpointing, compiled
#     m11b-recipe the same / checkpointing, eager: what recipes run
#     m11b-short  11B, 2 GPUs, rows of 60 to 340 tokens: packed to 4x4096 / padded, compiled
#     l8b         8B, 1 GPU, 2x4096, r 16 / no checkpointing, compiled
#     l8b-short   8B, 1 GPU, rows of 60 to 340 tokens: packed to 2x4096 / padded, compiled
#     l70b        70B, 2 GPUs, 1x2048, r 16 on q,v, blocks recomputed / checkpointing, compiled
#     l1b         1B, 1 GPU, 2x2048, r 16: to try the script
#     q9b         Qwen3.5 9B, 1 GPU, 4x4096, r 16 on the linears of attention and delta rule / checkpointing, compiled
#     q9b-recipe  the same / checkpointing, eager
#     q9b-fla     the same as q9b-recipe, the peer's scans by flash-linear-attention (hf_gpu_lora.py says when that runs)
#     q9b-kept    the same, 1x4096 / no checkpointing, compiled
#     q30b        Qwen3 30B-A3B, 1 GPU, 2x4096, r 16 on q,k,v,o / no checkpointing, compiled, experts by grouped_mm
#
# With a base in NF4 and double quantization:
#     l8b-nf4         8B, 1 GPU, 4x4096, r 16 on all seven linears, blocks recomputed / bitsandbytes, checkpointing, eager
#     l8b-nf4-compile the same / compiled
#     l8b-nf4-own     the same / trimtab over the same base in bf16
#     l70b-nf4-own    70B, 2 GPUs, 4x2048, r 16 on q,v, blocks recomputed / trimtab over the same base in bf16
#     l70b-nf4        70B, 2 GPUs, 2x2048, r 16 on q,v, a limit of 24 GiB a GPU: the memory plan chooses / nothing
#     l1b-nf4         1B, 1 GPU, 2x2048, r 16 on all seven, blocks recomputed / bitsandbytes, checkpointing: to try the script
#
# With a base in FP8 (docs/fp8.md), r 16 on q,k,v,o, nothing recomputed:
#     l8b-fp8         8B, 1 GPU, 2x4096 / linears in FP8 with row scales and both copies, compiled
#     l8b-fp8-4       the same, 4x4096
#     l8b-fp8-own     8B, 1 GPU, 2x4096 / trimtab over the same base in bf16
#     l8b-e4m3        the same with gate and up kept in E4M3 / trimtab in FP8 that keeps them as computed
#     l8b-e4m3-4      the same, 4x4096
#     l8b-fp8-head    8B, 1 GPU, 2x4096, lm_head in FP8 too / trimtab in FP8 that keeps it in bf16
#     l8b-nf4-fp8     8B, 1 GPU, in NF4, 4x4096, r 16 on all seven linears, blocks recomputed, products in FP8 / trimtab over
#                     the same base with products in bf16
#     m11b-fp8        11B, 2 GPUs, 4x4096 / in bf16, compiled
#     m11b-fp8-own    the same / trimtab over the same base in bf16
#     m11b-e4m3       the same with gate and up kept in E4M3 / trimtab in FP8 that keeps them as computed
#
# Prints every JSON line of both, and a table last: tokens/s/GPU, peak GB of each one's own allocations, seconds to
# the end of step 1, and below it the maximum of nvidia-smi during the cases with a limit. No run is started after
# --budget (default 900) seconds, and none takes longer than --limit (default 300), so cases run in the order given;
# a second pair runs in the other order. --tune runs trimtab with TRIMTAB_GEMM_TUNE=1 before each case, so that
# matrix products have been chosen by time as in any later run on that machine; that run is not counted. --dropout
# (0) is that of adapters. TRIMTAB is the program, PYTHON has torch, transformers, peft and, for nf4, bitsandbytes;
# PEER is another peer with the same flags and fields (unsloth_gpu_lora.py), SIDES=trimtab or SIDES=peer runs one side only, OUT is a
# folder for the logs.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
trimtab=${TRIMTAB:-$root/build/trimtab} python=${PYTHON:-python3} peer=${PEER:-$root/bench/peers/hf_gpu_lora.py}
sides=${SIDES:-both} out=${OUT:-$(mktemp -d)}
budget=900 longest=300 pairs=1 steps=6 warmup=3 tune=0 dropout=0
cases=()
while [ $# -gt 0 ]; do
    case $1 in
    --budget) budget=$2 && shift 2 ;;
    --limit) longest=$2 && shift 2 ;;
    --pairs) pairs=$2 && shift 2 ;;
    --steps) steps=$2 && shift 2 ;;
    --warmup) warmup=$2 && shift 2 ;;
    --tune) tune=1 && shift ;;
    --dropout) dropout=$2 && shift 2 ;;
    -*) sed -n '2,51p' "${BASH_SOURCE[0]}" >&2 && exit 2 ;;
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

# describe CASE: sets world, the other side (fsdp, bnb, bf16, fp8, nf4, torch-fp8, nothing), whether nvidia-smi is polled, both sides' flags.
describe() {
    local targets='["q_proj", "k_proj", "v_proj", "o_proj"]' names='q_proj,k_proj,v_proj,o_proj'
    local batch seq rank ckpt compile=1
    world=2 beside=fsdp watch=0 ours=() base=() other_base=() peers=()
    case $1 in
    m11b | m11b-block | m11b-recipe | m11b-short) shape=m11b batch=4 seq=4096 rank=8 ckpt=0 ;;
    l8b | l8b-short) shape=l8b batch=2 seq=4096 rank=16 ckpt=0 world=1 ;;
    l8b-nf4 | l8b-nf4-compile | l8b-nf4-own | l8b-nf4-fp8) shape=l8b batch=4 seq=4096 rank=16 ckpt=1 world=1 ;;
    l70b) shape=l70b batch=1 seq=2048 rank=16 ckpt=1 ;;
    l70b-nf4-own) shape=l70b batch=4 seq=2048 rank=16 ckpt=1 ;;
    l70b-nf4) shape=l70b batch=2 seq=2048 rank=16 ckpt=1 watch=1 ;;
    l8b-fp8 | l8b-fp8-own | l8b-fp8-head | l8b-e4m3) shape=l8b batch=2 seq=4096 rank=16 ckpt=0 world=1 ;;
    l8b-fp8-4 | l8b-e4m3-4) shape=l8b batch=4 seq=4096 rank=16 ckpt=0 world=1 ;;
    m11b-fp8 | m11b-fp8-own | m11b-e4m3) shape=m11b batch=4 seq=4096 rank=16 ckpt=0 ;;
    q9b | q9b-recipe | q9b-fla) shape=qwen3_5_9b batch=4 seq=4096 rank=16 ckpt=1 world=1 ;;
    q9b-kept) shape=qwen3_5_9b batch=1 seq=4096 rank=16 ckpt=0 world=1 ;;
    q30b) shape=qwen3_30b_a3b batch=2 seq=4096 rank=16 ckpt=0 world=1 ;;
    l1b | l1b-nf4) shape=l1b batch=2 seq=2048 rank=16 ckpt=0 world=1 ;;
    *) echo "error: there is no case '$1'" >&2 && exit 2 ;;
    esac
    case $1 in
    q9b*)
        names+=,in_proj_qkv,in_proj_z,out_proj
        targets="[\"${names//,/\", \"}\"]"
        ;;
    l70b*) targets='["q_proj", "v_proj"]' names=q_proj,v_proj ;;
    *-nf4*)
        names+=,gate_proj,up_proj,down_proj
        targets="[\"${names//,/\", \"}\"]"
        ;;
    esac
    case $1 in
    m11b-block | l70b | l8b-nf4* | l70b-nf4-own | l1b-nf4) ckpt=1 ours+=(--recompute block) ;;
    m11b-recipe | q9b-recipe) ckpt=1 compile=0 ;;
    q9b-fla) ckpt=1 compile=0 peers+=(--delta fla) ;;
    q30b) peers+=(--experts grouped_mm) ;;
    *-short)
        ours+=(--row_tokens_min 60 --row_tokens_max 340)
        peers+=(--rows 60 340)
        ;;
    l70b-nf4) ours+=(--device_memory 24GiB) ;;
    esac
    case $1 in
    *-nf4-own | *-fp8-own) beside=bf16 ;;
    *-nf4-fp8) beside=nf4 ;;
    *-fp8-head) beside=fp8 base=(--base_dtype fp8 --fp8_lm_head true) other_base=(--base_dtype fp8) ;;
    m11b-fp8) base=(--base_dtype fp8) ;;
    *-fp8 | *-fp8-4) beside=torch-fp8 base=(--base_dtype fp8) ;;
    *-e4m3 | *-e4m3-4) beside=fp8 base=(--base_dtype fp8 --fp8_gate_up e4m3) other_base=(--base_dtype fp8) ;;
    l70b-nf4) beside=nothing ;;
    *-nf4-compile) beside=bnb ;;
    *-nf4) beside=bnb compile=0 ;;
    esac
    case $1 in
    *-nf4*)
        base=(--load_in_4bit true --bnb_4bit_quant_type nf4 --bnb_4bit_use_double_quant true)
        peers+=(--quant nf4 --double-quant 1)
        ;;
    *-fp8-own) base=(--base_dtype fp8) ;;
    esac
    case $1 in
    *-nf4-fp8)
        other_base=("${base[@]}")
        base+=(--fp8_products single)
        ;;
    esac
    ours+=(--config_json "$root/bench/shapes/$shape.json" --ranks "$world" --per_device_train_batch_size "$batch"
        --sequence_length "$seq" --lora_r "$rank" --lora_alpha $((2 * rank)) --lora_dropout "$dropout"
        --lora_target_modules "$targets" --sharding_strategy FULL_SHARD)
    peers+=(--shape "$shape" --bs "$batch" --seq "$seq" --lora-r "$rank" --targets "$names" --ckpt "$ckpt"
        --compile "$compile")
    [ "$dropout" = 0 ] || peers+=(--dropout "$dropout")
    [ "$beside" != torch-fp8 ] || peers+=(--quant fp8)
}
left() {
    echo $((budget - SECONDS))
}
# watch_memory: prints the MiB of each process on each GPU, and of each GPU in all, twice a second until it is killed.
watch_memory() {
    local query="timeout --kill-after=1 5 nvidia-smi --format=csv,noheader,nounits"
    while sleep 0.5; do
        $query --query-compute-apps=used_memory | sed 's/^/process /'
        $query --query-gpu=memory.used | sed 's/^/gpu /'
    done
}
# choose_products CASE: times the algorithms of trimtab's matrix products and stores the choices in the cache.
choose_products() {
    local begin=$SECONDS limit
    limit=$(left)
    [ "$limit" -le "$longest" ] || limit=$longest
    TRIMTAB_GEMM_TUNE=1 timeout --kill-after=5 "$limit" "$trimtab" bench train --device cuda "${ours[@]}" "${base[@]}" --steps 1 \
        --warmup 0 >"$out/$1.tune.out" 2>"$out/$1.tune.err" || echo "$1: tuning failed: $(tail -n 1 "$out/$1.tune.err")"
    echo "$1: matrix products chosen in $((SECONDS - begin)) s, $(left) s left"
}
# run_side trimtab|peer CASE: runs one side, appends its JSON line to a file and prints the time it took.
run_side() {
    local side=$1 name=$2 begin=$SECONDS limit command watcher=
    limit=$(left)
    if [ "$limit" -le 0 ]; then
        echo "$name $side: not run, the budget is spent"
        return
    fi
    [ "$limit" -le "$longest" ] || limit=$longest
    if [ "$side" = trimtab ]; then
        command=("$trimtab" bench train --device cuda "${ours[@]}" "${base[@]}" --steps "$steps" --warmup "$warmup")
    elif [ "$beside" = bf16 ] || [ "$beside" = fp8 ] || [ "$beside" = nf4 ]; then
        command=("$trimtab" bench train --device cuda "${ours[@]}" "${other_base[@]}" --steps "$steps" --warmup "$warmup")
    elif [ "$world" -eq 1 ]; then
        command=("$python" "$peer" "${peers[@]}" --steps "$steps" --warmup "$warmup")
    else
        command=("$python" -m torch.distributed.run --standalone --nproc_per_node "$world" "$peer" "${peers[@]}"
            --steps "$steps" --warmup "$warmup")
    fi
    if [ "$watch" = 1 ]; then
        watch_memory >>"$out/$name.smi" 2>/dev/null &
        watcher=$!
    fi
    if ! timeout --kill-after=5 "$limit" "${command[@]}" >"$out/$name.$side.out" 2>"$out/$name.$side.err"; then
        echo "$name $side: failed: $(grep -iE 'error|hint' "$out/$name.$side.err" | tail -n 3 | tr '\n' ' ' | cut -c1-600)"
    fi
    if [ -n "$watcher" ]; then
        kill "$watcher"
        wait "$watcher" 2>/dev/null
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
    rm -f "$out/$name".*.json "$out/$name.smi"
    echo "$name $world $beside" >>"$out/cases"
    [ "$tune" = 0 ] || [ "$(left)" -le 0 ] || choose_products "$name"
    for pair in $(seq "$pairs"); do
        order=(trimtab peer)
        [ $((pair % 2)) -eq 1 ] || order=(peer trimtab)
        for side in "${order[@]}"; do
            if [ "$side" = peer ] && [ "$beside" = nothing ]; then continue; fi
            if [ "$sides" = both ] || [ "$sides" = "$side" ]; then run_side "$side" "$name"; fi
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


def rate(row, world):
    return row["tokens_per_second"] / world if "tokens_per_second" in row else row.get("tok_s_gpu", row.get("tok_s"))


def peak(row):
    return row["device_peak_bytes"] / 1e9 if "device_peak_bytes" in row else row["peak_gb"]


def first(row):
    return row.get("first_step_seconds", row.get("first_step_s", row.get("after")))


def trained(row):
    return row.get("trainable_params", row.get("trained_parameters"))


def seen(name, what):
    """The most that nvidia-smi saw, in GB; None where it said nothing of the kind."""
    path = out / f"{name}.smi"
    words = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    sizes = [int(pair[1]) * 2**20 / 1e9 for pair in words if len(pair) == 2 and pair[0] == what and pair[1].isdigit()]
    return max(sizes, default=None)


BESIDE = {"fsdp": "HF+PEFT+FSDP2", "bnb": "HF+PEFT+bnb", "bf16": "trimtab, bf16", "fp8": "trimtab, fp8", "nf4": "trimtab, nf4",
          "torch-fp8": "torch in fp8", "nothing": "-"}
notes = []
print(f"\n{'case':15s} {'GPUs':>4s} {'other side':13s} | {'tokens/s/GPU':>12s} {'other':>8s} {'ratio':>6s} | {'peak GB':>8s} "
      f"{'other':>8s} {'ratio':>6s} {'used GB':>8s} | {'step 1 s':>8s} {'other':>6s} | recompute")
for case in (out / "cases").read_text().splitlines():
    name, world, beside = case.split()
    ours, others = lines(name, "trimtab"), lines(name, "peer")
    if ours and others and trained(others[0]) is not None and trained(ours[0]) != trained(others[0]):
        # Under FSDP2 a rank counts whole tensors, so both numbers must agree.
        notes.append(f"{name}: not the same parameters are trained: {trained(ours[0])} and {trained(others[0])}")
    rates = [median(side, lambda row: rate(row, int(world))) for side in (ours, others)]
    peaks, firsts = ([median(side, value) for side in (ours, others)] for value in (peak, first))
    used = median(ours, lambda row: row.get("device_used_bytes", 0) / 1e9)
    if seen(name, "gpu") is not None:
        notes.append(f"{name}: nvidia-smi saw at most {text(seen(name, 'gpu'), '.2f')} GB in use on a GPU, "
                     f"{text(seen(name, 'process'), '.2f')} GB of it by one process")
    print(f"{name:15s} {world:>4s} {BESIDE[beside]:13s} | {text(rates[0], '12.0f'):>12s} {text(rates[1], '8.0f'):>8s} "
          f"{ratio(*rates):>6s} | {text(peaks[0], '8.2f'):>8s} {text(peaks[1], '8.2f'):>8s} {ratio(*peaks):>6s} "
          f"{text(used, '8.2f'):>8s} | {text(firsts[0], '8.2f'):>8s} {text(firsts[1], '6.1f'):>6s} | "
          f"{ours[0].get('recompute', '-') if ours else '-'}")
print("ratios: trimtab over the other side; in cases with nf4 trimtab is over NF4 with double quantization, in those with "
      "fp8 and e4m3 over FP8")
for note in notes:
    print(note)
END
