#!/bin/bash
# trimtab doctor over what the driver of GPUs and libibverbs report: a fault at a time, each named with its rank, on fake
# GPUs (tests/tools/fake_gpus.c) with fake libraries. The fake GPUs compute on the CPU, so their speed is never that of their
# chip: that is named too.
build=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
failures=0
source "$root/tests/tools/pretend_plugin.sh" "$build" fake_gpus
mkdir libraries
for library in nvidia-ml:fake_nvml ibverbs:fake_verbs; do
    "$cc" -shared -fPIC -o "libraries/lib${library%:*}.so.1" "$root/tests/tools/${library#*:}.c" || fail "the fake libraries"
done
export LD_LIBRARY_PATH=$folder/libraries

# preflight FAULT CODE LINE: a training of two GPUs with the quick check, which reads the counters too
preflight() {
    local code=0
    FAKE_NVML=$1 timeout 100 "$build/trimtab" train --model_name_or_path "$root/tests/golden/llama2/model" --ranks 2 --threads 1 \
        --dataset_name "$root/tests/golden/llama2/train.jsonl" --max_steps 1 --output_dir out --overwrite_output_dir true --report_to none --bf16 false \
        --save_strategy no --preflight quick >said 2>&1 || code=$?
    [ $code -eq "$2" ] || fail "preflight, $1: ends with $code"
    grep -qE "$3" said || fail "preflight, $1: no '$3'"
}
# doctor FAULT CODE LINE: all checks
doctor() {
    local code=0
    FAKE_NVML=$1 timeout 100 "$build/trimtab" doctor --ranks 2 --threads 1 >said 2>&1 || code=$?
    [ $code -eq "$2" ] || fail "doctor, $1: ends with $code"
    grep -qE "$3" said || fail "doctor, $1: no '$3'"
}
on='rank 1 on [^:]*'
preflight healthy 0 '^preflight: [0-9]+ checks in .*, 0 warned'
preflight ecc 10 "^error: 1 of [0-9]+ checks failed, first 'gpus': driver 580.95.05, .*; $on: 3 uncorrected ECC errors of its memory"
preflight row-failed 10 "; $on: a broken row of its memory that could not be replaced"
for fault in 'row-pending:rows of its memory that are replaced at its next reset' \
    'page-pending:rows of its memory that are replaced at its next reset' 'ecc-off:ECC is off' \
    'persistence-off:persistence mode is off, so the driver loads it anew for each run \(nvidia-smi -pm 1\)' \
    'used:9.0 GiB of its memory are in use by other programs' 'hot:clocks lowered by the hardware, because of heat' \
    'warm:clocks lowered by the driver, because of heat' 'brake:clocks lowered because the power supply asks for it' \
    'slow:clocks lowered by the hardware' 'width:PCIe with 8 of 16 lanes' 'nvlink:1 of 18 NVLinks are down' \
    'nvlink-errors:12 transfers over NVLink were repeated or recovered'; do
    preflight "${fault%%:*}" 0 "^warning: preflight: gpus: driver 580.95.05, PCIe 5 x[0-9]+, 18 NVLinks; $on: ${fault#*:}\$"
done
# A generation of PCIe below the highest is no fault while the GPU rests.
preflight generation 0 '^preflight: [0-9]+ checks in .*, 0 warned'
doctor generation 0 "^gpus +warning .*; $on: PCIe at generation 3 of 5 under load\$"
grep -qE "^speed +warning .*; $on reaches .* of the 640 usual for its chip" said || fail "products: not compared with the chip's"
for way in 'to the device' 'to the host' 'on the device \(read and written\)'; do
    grep -qE "^copies +warning .*median [0-9.e+]+ GB/s $way; rank [01] on [^:]*: [0-9.e+]+ GB/s, [0-9]+ % of what is usual for its chip" said ||
        fail "copies $way: not compared with the chip's"
done
grep -qE '^rdma +ok +4 of 4 devices register 64 MiB of memory$' said || fail "registration"
# The plan of a training on these GPUs.
settings=(--model_name_or_path "$root/tests/golden/llama2/model" --dataset_name "$root/tests/golden/llama2/train.jsonl" --output_dir planned)
FAKE_NVML=healthy timeout 100 "$build/trimtab" doctor --ranks 2 --threads 1 "${settings[@]}" >said 2>&1 || fail "doctor with a model: $?"
grep -qE "^plan +ok +[0-9.]+ [KMG]iB of a GPU's memory, [0-9.]+ [KMG]iB of memory a rank, a checkpoint at most" said || fail "no plan for GPUs"
# Prompts that generate completes at a time: what other programs leave of the GPU with the least (rank 1's) decides.
cp -r "$root/tests/golden/llama3/model" model && cp "$root"/tests/support/tiny_tokenizer/* model/ && chmod -R u+w model
seq -f '%g + 1 =' 40 >prompts.txt
for case in healthy:20 used:20 full:8 none:20; do
    FAKE_NVML=${case%:*} timeout 100 "$build/trimtab" generate --model_name_or_path model --prompt_file prompts.txt --ranks 2 --threads 1 \
        --max_new_tokens 4 --ignore_eos --bf16 false --stats >"answers.${case%:*}" 2>said || fail "generate, $case: ends with $?"
    grep -q "^at most ${case#*:} prompts at a time on a rank\$" said || fail "generate: not $case prompts at a time"
    cmp "answers.${case%:*}" answers.healthy || fail "generate, $case: other answers"
done
doctor none 0 "^gpus +ok +no NVML: the driver's counters are not read\$"
export FAKE_VERBS
for FAKE_VERBS in 'register:registers no 64 MiB of memory: Cannot allocate memory' 'domain:has no protection domain left: Cannot allocate memory' \
    'open:cannot be opened: Operation not permitted'; do
    text=${FAKE_VERBS#*:} FAKE_VERBS=${FAKE_VERBS%%:*}
    preflight healthy 0 "^warning: preflight: rdma: 2 of 4 devices register 64 MiB of memory; rank 0 on [^:]*: mlx5_1 $text; $on: mlx5_1 $text\$"
done
[ $failures -eq 0 ] && echo "all as expected"
exit $((failures > 0))
