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
# Memory that MPI itself never frees is not reported.
export ASAN_OPTIONS=detect_leaks=0:$ASAN_OPTIONS
# There are more ranks than processors: a rank that waits must yield its processor.
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

# Processes that a launcher of another MPI library has started are alone, each as if it were the whole run.
for name in PMI MV2_COMM_WORLD; do
    alone=$(env -u OMPI_COMM_WORLD_SIZE ${name}_RANK=1 ${name}_SIZE=2 timeout 60 "$rank" calls mpi 2147483647 2>&1) &&
        fail "a process of two is alone: $alone"
    [[ $alone == *"${name}_SIZE is 2, but MPI has started this process alone"* ]] || fail "alone: $alone"
done

# end NAME WORLD KIND MILLISECONDS: exit code and seconds are in NAME.end.
end() {
    local start=$SECONDS code=0
    launch 60 "$2" "$rank" "$3" "$4" >"$folder/$1.out" 2>&1 || code=$?
    echo "$code $((SECONDS - start))" >"$folder/$1.end"
}
for world in 2 3; do
    for wait_ms in 0 37 400; do
        end kill$wait_ms $world kill $wait_ms &
        end abort$wait_ms $world abort $wait_ms &
    done
    wait
    for wait_ms in 0 37 400; do
        for kind in kill abort; do
            read -r code seconds <"$folder/$kind$wait_ms.end"
            [ "$code" -ne 0 ] || fail "$world ranks, $kind after $wait_ms ms: no error"
            [ "$seconds" -le 30 ] || fail "$world ranks, $kind after $wait_ms ms: the others stay for $seconds s"
        done
        [ "$(grep -c "ends: rank 1 failed: a bad row" "$folder/abort$wait_ms.out")" -eq $world ] || {
            fail "$world ranks, one failed after $wait_ms ms: not all say why"
            cat "$folder/abort$wait_ms.out"
        }
    done
done
[ $failures -eq 0 ] && echo "all as expected"
exit $((failures > 0))
