#!/bin/bash
# Ranks over MPI: the same bits as ranks that are threads, and no rank outlives one that was killed or failed.
rank=$1/tests/test_fault_mpi_rank
command -v mpirun >/dev/null || { echo "skipped: there is no mpirun"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failures=0
fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}
# What MPI itself never frees is not ours to report.
export ASAN_OPTIONS=detect_leaks=0:$ASAN_OPTIONS
# Ranks outnumber processors here; a rank that waits must not take another one's.
export OMPI_MCA_mpi_yield_when_idle=1
flags=
mpirun --version 2>&1 | grep -q "Open MPI" && flags="--oversubscribe --allow-run-as-root"
launch() { timeout --kill-after=10 "$1" mpirun $flags -np "${@:2}"; }

launch 60 1 "$rank" calls mpi 2147483647 >"$folder/one" 2>&1
grep -q "this build has no MPI" "$folder/one" && { echo "skipped: a build without MPI"; exit 77; }

for world in 1 2 3; do
    "$rank" calls threads $world | sort >"$folder/threads"
    [ "$(wc -l <"$folder/threads")" -eq $world ] || fail "$world threads"
    for count_max in 2147483647 4099; do
        launch 120 $world "$rank" calls mpi $count_max 2>"$folder/err" | sort >"$folder/mpi"
        [ "${PIPESTATUS[0]}" -eq 0 ] || fail "$world ranks, messages of $count_max: $(tail -3 "$folder/err")"
        diff -u "$folder/threads" "$folder/mpi" || fail "$world ranks, messages of $count_max: other bits"
    done
done

for world in 2 3; do
    for wait_ms in 0 37 400; do
        start=$SECONDS
        launch 60 $world "$rank" kill $wait_ms >"$folder/out" 2>&1 && fail "$world ranks, one killed: no error"
        [ $((SECONDS - start)) -le 30 ] || fail "$world ranks, one killed after $wait_ms ms: the others stay"
        start=$SECONDS
        launch 60 $world "$rank" abort $wait_ms >"$folder/out" 2>&1 && fail "$world ranks, one failed: no error"
        [ $((SECONDS - start)) -le 30 ] || fail "$world ranks, one failed after $wait_ms ms: the others stay"
        [ "$(grep -c "ends: rank 1 failed: a bad row" "$folder/out")" -eq $world ] || {
            fail "$world ranks, one failed after $wait_ms ms: not all say why"
            cat "$folder/out"
        }
    done
done
[ $failures -eq 0 ] && echo "all as expected"
exit $((failures > 0))
