#!/usr/bin/env bash
# All-gather and reduce-scatter between processes of this machine: direct connections, Open MPI over TCP and over
# shared memory (trimtab over it, and MPI's own collectives), and the hub that preceded the direct connections,
# built from its last commit. One table at the end.
#
#   bench/comm.sh [--build FOLDER] [--old COMMIT] [--ranks "2 4 8"] [--mb 64] [--rounds 11] [--passes 3] [--without "hub ..."]
#
# FOLDER (build) is built first. Without mpirun there are no rows over MPI; a copy without git's history needs --without hub.
# Each pass runs everything once, in turns; a cell is the median of the passes' medians, in milliseconds of the slowest
# rank. Compare numbers only within one call.
set -euo pipefail
cd "$(dirname "$0")/.."
build=build old="" ranks="2 4 8" mb=64 rounds=11 passes=3 without=
while [ $# -gt 0 ]; do
    case $1 in
    --build) build=$2 ;;
    --old) old=$2 ;;
    --ranks) ranks=$2 ;;
    --mb) mb=$2 ;;
    --rounds) rounds=$2 ;;
    --passes) passes=$2 ;;
    --without) without=$2 ;;
    *) echo "usage: see the head of $0" >&2; exit 2 ;;
    esac
    shift 2
done
tools/build.sh "$build" -DCMAKE_BUILD_TYPE=Release bench_comm
direct=$build/bench/bench_comm
folder=$(mktemp -d)
finish() {
    [ ! -e "$folder/tree" ] || git worktree remove --force "$folder/tree"
    rm -rf "$folder"
}
trap finish EXIT

hub=
if [[ " $without " != *" hub "* ]]; then
    # The program of the commit that replaced the hub fits both sides of it.
    replaced=$(git log --format=%H --diff-filter=D -1 -- src/comm/hub_calls.c)
    [ -n "$replaced" ] || { echo "error: this history has no commit with the hub: --without hub" >&2; exit 1; }
    [ -n "$old" ] || old=$replaced^
    git worktree add -q --detach "$folder/tree" "$old"
    for file in bench/comm.c bench/CMakeLists.txt; do git show "$replaced:$file" >"$folder/tree/$file"; done
    "$folder/tree/tools/build.sh" "$folder/build" "-DCMAKE_BUILD_TYPE=Release -DTT_TESTS=OFF -DTT_WITH_CUDA=OFF" bench_comm
    hub=$folder/build/bench/bench_comm
fi

mpi() { # of an interface, `over`, ranks
    local root=()
    [ "$(id -u)" -ne 0 ] || root=(--allow-run-as-root)
    OMPI_MCA_mpi_yield_when_idle=1 mpirun "${root[@]}" --oversubscribe --bind-to none --mca pml ob1 --mca btl "$1,self" \
        -np "$3" "$direct" "$2" "$mb" "$rounds"
}
command -v mpirun >/dev/null || without+=" mpi-tcp mpi-tcp-own mpi-shm mpi-shm-own"
shared=vader # Open MPI 4; 5 calls it sm
mpirun --version 2>/dev/null | grep -q "Open MPI) [5-9]" && shared=sm

run() { # name, ranks, command: its lines, named
    local name=$1
    shift 2
    [[ " $without " != *" $name "* ]] || return 0
    "$@" | sed "s/^{/{\"name\": \"$name\", /"
}

lines=$folder/lines
for pass in $(seq "$passes"); do
    for n in $ranks; do
        echo "pass $pass, $n ranks" >&2
        run direct "$n" "$direct" tcp "$n" "$mb" "$rounds"
        run mpi-tcp "$n" mpi tcp mpi "$n"
        run mpi-tcp-own "$n" mpi tcp mpi-own "$n"
        run mpi-shm "$n" mpi $shared mpi "$n"
        run mpi-shm-own "$n" mpi $shared mpi-own "$n"
        [ -z "$hub" ] || run hub "$n" "$hub" tcp "$n" "$mb" "$rounds"
    done
done >"$lines"
python3 - "$lines" "$mb" "$(nproc)" <<'END'
import json, statistics, sys
rows = {}
for line in open(sys.argv[1]):
    row = json.loads(line)
    rows.setdefault((row["call"], row["name"], row["ranks"]), []).append((row["median_ms"], row["bytes_per_second"]))
names = list(dict.fromkeys(name for _, name, _ in rows))
ranks = sorted({n for _, _, n in rows})
print(f"{sys.argv[2]} MiB, {sys.argv[3]} processors; ms, and GB/s that all ranks together receive")
for call in ("all_gather", "reduce_scatter"):
    print(f"\n| {call} | " + " | ".join(f"{n} ranks" for n in ranks) + " |\n|---|" + "---|" * len(ranks))
    for name in names:
        cells = []
        for n in ranks:
            values = rows.get((call, name, n), [])
            cells.append(f"{statistics.median(v[0] for v in values):.1f} ({statistics.median(v[1] for v in values) / 1e9:.2f})"
                         if values else "-")
        print(f"| {name} | " + " | ".join(cells) + " |")
END
