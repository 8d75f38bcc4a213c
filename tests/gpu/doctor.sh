#!/usr/bin/env bash
# trimtab doctor's figures beside those of bench_ops and bench_comm, on two GPUs of one machine, in turns; about a minute.
#
#     tests/gpu/doctor.sh BUNDLE LOG_FOLDER
#
# BUNDLE is a folder of tests/gpu/bundle.sh. Each figure is the median of its turns; one that is more than TT_PERCENT (10)
# per cent from the bench's is a FAIL, and then the exit code is 1. TT_TURNS (2); TT_BUDGET (60): seconds after which no
# further turn begins that would end later. TT_GPU_LIBRARIES as in run.sh.
set -uo pipefail
[ $# -eq 2 ] || { sed -n '2,8p' "${BASH_SOURCE[0]}" >&2; exit 2; }
bundle=$(cd "$1" && pwd) turns=${TT_TURNS:-2} budget=${TT_BUDGET:-60} took=0
mkdir -p "$2"
log=$(cd "$2" && pwd)
libraries=${TT_GPU_LIBRARIES:-$(python3 -c 'import glob, nvidia
print(":".join(sorted(path for root in nvidia.__path__ for path in glob.glob(root + "/*/lib"))))' 2>/dev/null)}
export LD_LIBRARY_PATH=$bundle/lib${libraries:+:$libraries}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export TRIMTAB_CUDA_PLUGIN=$bundle/libtrimtab_cuda.so XDG_CACHE_HOME=$log/cache CUDA_DEVICE_ORDER=PCI_BUS_ID
export NCCL_NVLS_ENABLE=${NCCL_NVLS_ENABLE:-0} # multicast stays off where hosts are shared
rm -f "$log"/*.json "$log"/*.log

# run LIMIT FILE COMMAND...: stdout into FILE.json, the rest into FILE.log
run() {
    local limit=$1 file=$log/$2 code=0
    shift 2
    timeout --signal=KILL "$limit" "$@" >"$file.json" 2>"$file.log" </dev/null || code=$?
    [ $code -eq 0 ] || echo "$(basename "$file"): exit code $code: $(grep -m 1 -i error "$file.log" | cut -c1-300)"
}
for turn in $(seq "$turns"); do
    [ $((SECONDS + took)) -le "$budget" ] || { echo "no turn $turn: it would end after $budget s"; break; }
    begin=$SECONDS
    run 40 "doctor.$turn" "$bundle/trimtab" doctor --ranks 2 --device cuda --output_dir "$log/output" --json
    for gpu in 0 1; do
        run 30 "ops$gpu.$turn" env CUDA_VISIBLE_DEVICES="$gpu" "$bundle/bench_ops" --device cuda --seconds 0.2 host_copies
    done
    run 30 "sums.$turn" "$bundle/bench_comm" gpus 2 256 11
    run 30 "links.$turn" "$bundle/bench_comm" gpus 2 512 11
    took=$((SECONDS - begin))
done

python3 - "$log" "${TT_PERCENT:-10}" <<'END'
import glob
import json
import statistics
import sys

folder, bound = sys.argv[1], float(sys.argv[2])


def lines(name):
    """The objects of each turn's file."""
    for path in sorted(glob.glob(f"{folder}/{name}.*.json")):
        with open(path) as file:
            yield [json.loads(line) for line in file if line.startswith("{")]


def bench(name, key, wanted, field):
    """One value of each turn: `field` of the line whose `key` is `wanted`."""
    return [row[field] for rows in lines(name) for row in rows if row.get(key) == wanted]


doctors = []
for path in sorted(glob.glob(f"{folder}/doctor.*.json")):
    with open(path) as file:
        text = file.read()
    if text.strip():
        doctors.append(json.loads(text))
table = []
# Of collectives both report the fastest round, and of a round the slowest rank.
for gpu in (0, 1):
    ranks = [doctor["ranks"][gpu] for doctor in doctors]
    table.append((f"products in bf16, GPU {gpu}", "TFLOP/s", [rank["flops"] / 1e12 for rank in ranks],
                  [value / 1e3 for value in bench(f"ops{gpu}", "op", "gemm bf16 8192x8192x8192", "gflops")]))
    for name, field, op in (("to the device", "to_device", "copy to the device 256 MiB"),
                            ("to the host", "to_host", "copy to the host 256 MiB"),
                            ("on the device", "on_device", "copy 1 GiB")):
        table.append((f"copies {name}, GPU {gpu}", "GB/s",
                      [rank["gpu"][field + "_bytes_per_second"] / 1e9 for rank in ranks],
                      bench(f"ops{gpu}", "op", op, "gbytes_per_s")))
table.append(("all-reduce of 256 MiB (bus)", "GB/s",
              [doctor["all_reduce_bytes_per_second"] / 1e9 for doctor in doctors],
              [(256 << 20) / 1e6 / value for value in bench("sums", "call", "all_reduce", "best_ms")]))
# Both ranks receive at once, half of the bytes each.
table.append(("link, each way", "GB/s", [doctor["ranks"][0]["link_bytes_per_second"] / 1e9 for doctor in doctors],
              [(512 << 20) / 2 / 1e6 / value for value in bench("links", "call", "all_gather", "best_ms")]))
failed = 0
print(f"{'':4} {'figure':32} {'':8} {'doctor':>8} {'bench':>8} {'differ':>7}   turns of each")
for name, unit, doctor, own in table:
    if not doctor or not own:
        failed += 1
        print(f"FAIL {name:32} {unit:8} not measured")
        continue
    a, b = statistics.median(doctor), statistics.median(own)
    percent = 100 * (a / b - 1)
    failed += abs(percent) > bound
    said = ", ".join(f"{value:.4g}" for value in doctor) + " | " + ", ".join(f"{value:.4g}" for value in own)
    print(f"{'FAIL' if abs(percent) > bound else 'PASS'} {name:32} {unit:8} {a:8.4g} {b:8.4g} {percent:+6.1f} %   {said}")
for doctor in doctors[-1:]:
    print(f"transport {doctor['transport']}, 1 KiB in {1e6 * doctor['all_reduce_seconds']:.1f} us; a doctor takes "
          f"{doctor['seconds']:.1f} s; checks that are not ok: "
          f"{[check['name'] + ': ' + check['text'] for check in doctor['checks'] if check['result'] != 'ok']}")
print(f"{len(table) - failed} of {len(table)} figures within {bound:g} %")
sys.exit(failed > 0)
END
code=$?
echo "took $SECONDS s, logs in $log"
exit $code
