# Sourced by tests with fake GPUs: $1 is the build folder, $2 the name of a source in tests/tools. Changes to an empty
# folder, builds the plugin and names it in the environment. fail MESSAGE [FILE] shows the end of the file (said) and
# counts in $failures.
build=$1 source_name=$2
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cc=$(sed -n 's/^CMAKE_C_COMPILER:[^=]*=//p' "$build/CMakeCache.txt") # whose OpenMP the archives use
grep -q "^TT_SANITIZE:BOOL=ON" "$build/CMakeCache.txt" && { echo "skipped: a plugin cannot bring its own sanitizer"; exit 77; }
threads=() # the thread sanitizer's runtime is the program's
grep -q "^TT_SANITIZE_THREAD:BOOL=ON" "$build/CMakeCache.txt" && threads=(-fsanitize=thread -g)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
fail() {
    echo "FAILED: $1"
    tail -20 "${2:-said}" 2>/dev/null
    failures=$((failures + 1))
}
mpi=$(sed -n 's/^MPI_C_LIBRARIES.*=//p;s/^MPI_mpi_LIBRARY:[^=]*=//p' "$build/CMakeCache.txt" | head -1)
"$cc" -std=gnu17 -O1 "${threads[@]}" -shared -fPIC -fvisibility=hidden -D_GNU_SOURCE -I"$root/src" -I"$root/include" \
    "$root/tests/tools/$source_name.c" -o plugin.so -Wl,-Bsymbolic \
    -Wl,--start-group "$build"/libtt_comm.a "$build"/libtt_backend.a "$build"/libtt_tensor.a "$build"/libtt_config.a \
    "$build"/libtt_base.a -Wl,--end-group ${mpi:+"$mpi"} -lpcre2-8 -lyaml -llzma -fopenmp -lpthread -ldl -lm ||
    { echo "FAILED: the plugin cannot be built"; exit 1; }
export TRIMTAB_CUDA_PLUGIN=$folder/plugin.so
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR CUDA_VISIBLE_DEVICES LATE_SLOW LATE_FAIL
