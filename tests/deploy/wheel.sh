#!/bin/bash
# The Python wheel of packaging/wheel.sh: the same bytes twice, a tag that is true, and in a fresh virtual environment,
# installed without network, the command `trimtab` with the libraries of the wheel. `wheel.sh BUILD gpu` by hand takes
# the plugin along.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
# shellcheck source=tests/tools/finds_follower.sh
source "$root/tests/tools/finds_follower.sh"
kind=${2:-cpu}
for program in patchelf python3 readelf; do
    command -v $program >/dev/null || { echo "skipped: there is no $program"; exit 77; }
done
[ -x "$build/portable/trimtab" ] || { echo "skipped: a build with sanitizers has no portable program"; exit 77; }
options=()
[ "$kind" = gpu ] || options=(--cpu)
"$root/packaging/wheel.sh" "$build" one "${options[@]}" >made 2>&1 || { cat made; exit 1; }
cat made
umask 077 # what the files are called from must not matter
TZ=Asia/Tokyo LC_ALL=C "$root/packaging/wheel.sh" "$build" two "${options[@]}" >made 2>&1 || { cat made; exit 1; }
umask 022
cmp one/*.whl two/*.whl || fail "two wheels of one build differ"
python3 -m zipfile -e one/*.whl files
grep -qrlF -e "$root" files && fail "the name of the build's folder is in the wheel: $(grep -rlF -e "$root" files)"

# The tag: no file needs a later glibc than it says, or a library that is neither in the wheel nor in every system of the
# tag (PEP 600), but for NVIDIA's.
wheel=$(basename one/*.whl)
minor=$(sed -nE 's/.*-manylinux_2_([0-9]+)_.*/\1/p' <<<"$wheel")
[ -n "$minor" ] || fail "$wheel has no manylinux tag"
latest=0
while read -r file; do
    for version in $(readelf -VW "$file" | grep -oE 'Name: GLIBC_2\.[0-9]+' | cut -d. -f2 | sort -u); do
        [ "$version" -le "$latest" ] || latest=$version
    done
    readelf -VW "$file" | grep -qE 'GLIBC_(PRIVATE|ABI)' && fail "$file uses what is private to one glibc"
    for name in $(readelf -dW "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]$/\1/p'); do
        case $name in
        libc.so.6 | libm.so.6 | libdl.so.2 | librt.so.1 | libpthread.so.0 | ld-linux-*.so.* | libgcc_s.so.1) ;;
        libstdc++.so.6 | libcublasLt.so.*) [ "$kind" = gpu ] || fail "$file needs $name" ;;
        *) [ -e "files/trimtab/lib/$name" ] || fail "$file needs $name, which is not in the wheel" ;;
        esac
    done
done < <(find files/trimtab -type f -not -name '*.py')
[ "$latest" = "$minor" ] || fail "the files need glibc 2.$latest, and the tag says 2.$minor"

python3 -m venv environment >log 2>&1 || { echo "skipped: no virtual environment can be made: $(tail -n 1 log)"; finish; }
environment/bin/pip install --no-index --disable-pip-version-check one/*.whl >log 2>&1 || fail "pip: $(cat log)"
# The command alone: no build folder, none of the caller's variables.
command=(env -i PATH="$folder/environment/bin:/usr/bin:/bin" trimtab)
[ "$("${command[@]}" --version)" = "$("$trimtab" --version)" ] || fail "trimtab --version"
[ "$(environment/bin/python -m trimtab --version)" = "$("$trimtab" --version)" ] || fail "python -m trimtab"
program=$(environment/bin/python -c 'import trimtab; print(trimtab.program())')
outside=$(ldd "$program" | grep -vE "$folder|linux-vdso|ld-linux|/lib(c|m)\.so\.6 ")
[ -z "$outside" ] || fail "libraries from outside the wheel: $outside"
"${command[@]}" train --model_name_or_path "$root/examples/demo/model" --max_steps 2 --max_length 128 --ranks 1 --threads 2 \
    --dataset_name "$root/examples/demo/data/train.jsonl" --output_dir out >log 2>&1 || fail "training: $(tail -n 3 log)"
[ -s out/adapter_model.safetensors ] || fail "training left no adapter"
finds_follower environment/bin/trimtab "$(dirname "$program")/../share/trimtab/python/tracker.py"
"${command[@]}" train --model_name_or_path "$root/examples/demo/model" --max_steps 1 --max_length 128 --report_to swanlab \
    --dataset_name "$root/examples/demo/data/train.jsonl" --output_dir missing >log 2>&1 || fail "with a tracker: $(tail -n 3 log)"
grep -q "package swanlab is not installed for $folder/environment/bin/python" log || fail "the follower: $(grep swanlab log)"
code=0
"${command[@]}" train --nonsense 1 >log 2>&1 || code=$?
[ $code -eq 2 ] || fail "exit code $code of a wrong setting"
# A signal to the command reaches the program: there is no Python process before it.
"${command[@]}" train --model_name_or_path "$root/examples/demo/model" --max_steps 100000 --max_length 128 --logging_steps 1 \
    --dataset_name "$root/examples/demo/data/train.jsonl" --output_dir stopped >log 2>&1 &
for _ in $(seq 300); do
    ! grep -q '^step' log || break
    sleep 0.1
done
kill -TERM $!
code=0
wait $! || code=$?
[ $code -eq 11 ] || fail "after SIGTERM: exit $code: $(tail -n 3 log)"
if [ "$kind" = gpu ]; then
    [ -e "$(dirname "$program")/../lib/trimtab/libtrimtab_cuda.so" ] || fail "the wheel has no plugin"
    code=0
    "${command[@]}" train --model_name_or_path "$root/examples/demo/model" --max_steps 1 --device cuda \
        --dataset_name "$root/examples/demo/data/train.jsonl" --output_dir gpu >log 2>&1 || code=$?
    [ $code -eq 10 ] || fail "--device cuda: exit $code: $(cat log)"
    cat log
fi
environment/bin/pip uninstall --yes --disable-pip-version-check trimtab >log 2>&1 || fail "pip uninstall: $(cat log)"
[ ! -e environment/bin/trimtab ] || fail "uninstalling leaves the command"
finish
