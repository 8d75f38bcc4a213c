#!/usr/bin/env bash
# Copies everything that tests and measurements on GPUs need into one folder, for a machine that cannot build:
# program, plugin, the tests of ops, of layers that differ and of communicators, bench_ops, bench_comm and bench_load,
# stripped, and the libraries that a bare machine lacks. An archive of the folder (tar -cJ) is about a seventh of its size.
#
#     tests/gpu/bundle.sh FOLDER [BUILD_FOLDER]
#
# BUILD_FOLDER (default build-gpu) is configured and built without MPI. CMAKE_OPTIONS adds options, such as
# -DTT_CUDA_ARCHITECTURES=90a; JOBS is the number of parallel compilers.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
[ $# -ge 1 ] || { sed -n '2,9p' "${BASH_SOURCE[0]}" >&2; exit 2; }
bundle=$1 build=${2:-$root/build-gpu}
read -ra options <<<"${CMAKE_OPTIONS:-}"
generator=()
[ -e "$build/CMakeCache.txt" ] || ! command -v ninja >/dev/null || generator=(-G Ninja)

pkg-config --exists cmocka || {
    echo "the tests of the bundle need cmocka: tools/install-dependencies.sh test (libcmocka-dev)" >&2
    exit 2
}
targets=(trimtab trimtab_cuda bench_ops bench_load bench_comm test_unit_comm_gpus test_unit_engine_mixed_model
    test_unit_infer_shared_keys)
for source in "$root"/tests/ops/*.c; do
    name=$(basename "$source" .c)
    case $name in
    harness* | vector_math | gemm_rounding | e4m3_rows) ;; # the harness, and tests of the CPU alone
    *) targets+=("test_ops_$name") ;;
    esac
done
cmake -S "$root" -B "$build" "${generator[@]}" -DTT_WITH_MPI=OFF "${options[@]}" >&2
cmake --build "$build" --parallel "${JOBS:-$(nproc)}" --target "${targets[@]}" >&2

rm -rf "$bundle"
mkdir -p "$bundle/lib"
for target in "${targets[@]}"; do
    case $target in
    trimtab) file=$build/trimtab ;;
    trimtab_cuda) file=$build/libtrimtab_cuda.so ;;
    bench_*) file=$build/bench/$target ;;
    *) file=$build/tests/$target ;;
    esac
    cp "$file" "$bundle/"
    strip "$bundle/$(basename "$file")"
done
# The libraries of libc and of the compiler exist everywhere, and must be those of the machine, as those of CUDA.
needed=$(ldd "$bundle"/trimtab "$bundle"/test_* "$bundle"/bench_ops | sed -n 's/^.* => \(\/[^ ]*\).*$/\1/p' | sort -u |
    grep -vE '/(lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|cu[a-zA-Z]*|nccl)\.so|ld-linux)')
for library in $needed; do cp -L "$library" "$bundle/lib/"; done
bytes=$(du -sb "$bundle" | cut -f1)
echo "$bundle: $((bytes >> 10)) KiB, $(find "$bundle" -type f | wc -l) files"
