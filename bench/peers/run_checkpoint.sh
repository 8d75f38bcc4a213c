#!/usr/bin/env bash
# Saving and resuming: trimtab train compared with PyTorch (FSDP2, AdamW, torch.distributed.checkpoint) on the same
# shape, batch, GPUs and file systems, one after the other.
#
#     bench/peers/run_checkpoint.sh [--budget SECONDS] [--shape l1b] [--ranks 2] [--kinds "full lora"] [--saves N] FOLDER...
#
# Both sides save in each FOLDER and then remove their files. For l1b it needs 64 GB, or 45 GB with --saves 1:
# trimtab asks for room for one checkpoint more than it keeps. Kinds: full (all weights; both store fp32 masters and
# both moments, 12 bytes per parameter), full14 (trimtab's with weights in bf16 beside them, a folder that
# transformers loads; no peer), lora (rank 16 on all linears). Both flush files (fsync). Both read from the page
# cache, because reading follows writing. trimtab verifies the sum of every byte when it resumes; PyTorch's format
# has no sums.
#
# Prints every JSON line, and a table last. No run is started after --budget (default 600) seconds, and none lasts
# beyond it. TRIMTAB is the program, BENCH_LOAD makes the model folder (or MODEL names one of that shape), PYTHON
# has torch, transformers and peft. SIDES=trimtab or SIDES=peer runs one side, MODES (async,sync) and THREADS (8)
# are the peer's, EVERY is the number of steps between trimtab's saves (20 with LoRA, else 120; a save should take
# less), RESTART=0 leaves out the processes that only resume, BATCH and SEQ (2 and 1024) are of one rank, DEVICE=cpu
# runs everything on the CPU, OUT is a folder for logs.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
peers=$root/bench/peers
trimtab=${TRIMTAB:-$root/build/trimtab} python=${PYTHON:-python3} sides=${SIDES:-both} out=${OUT:-$(mktemp -d)}
bench_load=${BENCH_LOAD:-$(dirname "$trimtab")/bench/bench_load}
[ -x "$bench_load" ] || bench_load=$(dirname "$trimtab")/bench_load
device=${DEVICE:-cuda} batch=${BATCH:-2} seq=${SEQ:-1024} restart=${RESTART:-1}
budget=600 shape=l1b ranks=2 kinds="full lora" saves=2
folders=()
while [ $# -gt 0 ]; do
    case $1 in
    --budget) budget=$2 && shift 2 ;;
    --shape) shape=$2 && shift 2 ;;
    --ranks) ranks=$2 && shift 2 ;;
    --kinds) kinds=$2 && shift 2 ;;
    --saves) saves=$2 && shift 2 ;;
    -*) sed -n '2,17p' "${BASH_SOURCE[0]}" >&2 && exit 2 ;;
    *) folders+=("$1") && shift ;;
    esac
done
[ ${#folders[@]} -gt 0 ] || { sed -n '2,17p' "${BASH_SOURCE[0]}" >&2 && exit 2; }
mkdir -p "$out"
: >"$out/lines"
export NCCL_NVLS_ENABLE=${NCCL_NVLS_ENABLE:-0} # multicast stays off where hosts are shared
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-4}

left() {
    echo $((budget - SECONDS))
}
# timed NAME COMMAND...: appends the command's JSON line with NAME to the others; a failure is reported and skipped.
timed() {
    local name=$1 begin=$SECONDS limit file
    shift
    limit=$(left)
    if [ "$limit" -le 5 ]; then
        echo "$name: not run, the budget is spent"
        return
    fi
    file=$out/$(tr -c 'a-zA-Z0-9\n' '_' <<<"$name")
    if ! timeout --kill-after=5 "$limit" "$@" --limit "$((limit - 2))" >"$file.out" 2>"$file.err" </dev/null; then
        echo "$name: failed: $(grep -m 2 -E '^error|hint|Error: |Timeout' "$file.err" | tr '\n' ' ' | cut -c1-400)"
    fi
    { grep '^{' "$file.out" || true; } | tail -n 1 | sed "s|^{|{\"name\": \"$name\", |" | tee -a "$out/lines"
    echo "$name: $((SECONDS - begin)) s, $(left) s left"
}

model=${MODEL:-}
made=
if [ -z "$model" ] && [ "$sides" != peer ]; then
    mkdir -p "${folders[0]}"
    model=${folders[0]}/model-$shape made=$model
    rm -rf "$model"
    timeout --kill-after=5 120 "$bench_load" make "$model" --config_json "$root/bench/shapes/$shape.json"
fi
trap '[ -z "$made" ] || rm -rf "$made"' EXIT

for folder in "${folders[@]}"; do
    mkdir -p "$folder"
    echo "$folder: $(df --output=fstype,avail -BG "$folder" | tail -n 1 | tr -s ' ') free"
    for kind in $kinds; do
        lora=0 dtype=float32 every=120
        case $kind in
        full) ;;
        full14) dtype= ;;
        lora) lora=16 every=20 ;;
        *) echo "error: there is no kind '$kind'" >&2 && exit 2 ;;
        esac
        if [ "$sides" != peer ]; then
            timed "$kind $folder trimtab" "$python" "$peers/trimtab_checkpoint.py" --trimtab "$trimtab" --model "$model" \
                --folder "$folder" --device "$device" --ranks "$ranks" --lora "$lora" --bs "$batch" --seq "$seq" \
                --every "${EVERY:-$every}" --saves "$saves" --save-dtype "$dtype" --restart "$restart"
            rm -rf "$folder/trimtab-run"
        fi
        if [ "$sides" != trimtab ] && [ "$kind" != full14 ]; then
            peer=("$python" -m torch.distributed.run --standalone --nproc_per_node "$ranks" "$peers/torch_checkpoint.py"
                --shape "$shape" --folder "$folder" --device "$device" --lora "$lora" --bs "$batch" --seq "$seq"
                --threads "${THREADS:-8}" --modes "${MODES:-async,sync}" --saves "$saves")
            timed "$kind $folder torch" "${peer[@]}" --keep "$restart"
            kept=$(sed -n "s|^{\"name\": \"$kind $folder torch\".*\"checkpoint\": \"\([^\"]*\)\".*|\1|p" "$out/lines")
            [ "$restart" != 1 ] || [ -z "$kept" ] || timed "$kind $folder torch-restart" "${peer[@]}" --resume "$kept"
            rm -rf "$folder"/torch-*
        fi
    done
done

"$python" - "$out/lines" <<'END_OF_TABLE'
import json
import sys


def text(value, width, form):
    return format(format(value, form) if value is not None else "-", f">{width}s")


rows = [json.loads(line) for line in open(sys.argv[1])]
wide = max([len(row["name"]) for row in rows], default=8)
print("\nlost: by what the step after a save is longer; call: of it, what the program itself says. slower: all further steps "
      "until it was written")
print(f"{'run':{wide}s} {'save':>12s} {'GB':>7s} {'bytes/p':>7s} {'step ms':>8s} {'lost ms':>8s} {'% step':>7s} {'call ms':>8s} "
      f"{'written s':>9s} {'GB/s':>6s} {'slower ms':>9s} {'of steps':>8s}")
for row in rows:
    for save in row.get("saves", []):
        step, lost, call = row["step_s"], save["gap_s"], save["stall_s"]
        print(f"{row['name']:{wide}s} {save['mode'][:10] + ' ' + str(save['number']):>12s} {save['bytes'] / 1e9:7.2f} "
              f"{save['bytes'] / row['trained_parameters']:7.2f} {1e3 * step:8.1f} {text(lost and 1e3 * lost, 8, '.1f')} "
              f"{text(lost and 100 * lost / step, 7, '.1f')} {text(call and 1e3 * call, 8, '.1f')} {save['written_s']:9.2f} "
              f"{save['bytes'] / save['written_s'] / 1e9:6.2f} {1e3 * save['slower_s']:9.1f} {save['steps_meanwhile']:8d}")
print("\nload: into the devices, of torch in a running process, of ours with the base model; load+step: of a new process, after "
      "planning or building; to step 1: from its start; begin: the same of a run that begins")
print(f"{'going on':{wide}s} {'load s':>8s} {'load+step':>9s} {'to step 1':>9s} {'begin':>8s}")
for row in rows:
    name = f"{row['name']:{wide}s}"
    if "resumed_first_step_s" in row:
        after = row["resumed_first_step_s"] - row["resumed_planned_s"]
        print(f"{name} {text(row['load_s'], 8, '.3f')} {text(after, 9, '.2f')} {text(row['resumed_first_step_s'], 9, '.2f')} "
              f"{text(row['first_step_s'], 8, '.2f')}   reading and checking all of {row['load_bytes'] / 1e9:.2f} GB first: "
              f"{row['verify_s']:.3f} s")
    elif "built_s" in row:
        print(f"{name} {text(row['load_s'], 8, '.2f')} {text(row['first_step_s'] - row['built_s'], 9, '.2f')} "
              f"{text(row['first_step_s'], 9, '.2f')} {text(None, 8, '')}")
    elif "load_s" in row:
        print(f"{name} {text(row['load_s'], 8, '.2f')} {text(None, 9, '')} {text(None, 9, '')} {text(None, 8, '')}"
              f"   values are {'those' if row['load_is_exact'] else 'NOT those'} that were saved")
END_OF_TABLE
