#!/usr/bin/env bash
# Builds a Python wheel: the program, the libraries that it needs besides glibc, and the plugin for GPUs where it is
# built. `pip install FILE.whl` gives the command `trimtab`; Python runs beside the program for trackers alone. Two runs
# over the same build give the same file.
#
#     packaging/wheel.sh BUILD FOLDER [--cpu]
#
# BUILD is a build folder of this repository, FOLDER gets the file. --cpu leaves the plugin out. The tag manylinux_2_N
# has the version of glibc that the files need: it is read from their symbols.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=deploy/closure.sh
source "$root/deploy/closure.sh"
[ $# -ge 2 ] || { sed -n '6,9p' "${BASH_SOURCE[0]}" >&2; exit 2; }
build=$1 out=$2 cpu=${3:-}
need patchelf patchelf
need python3 python3
need strip binutils
[ -x "$build/portable/trimtab" ] || fail "$build has no portable/trimtab: build its target trimtab_portable"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
package=$work/wheel/trimtab
mkdir -p "$package/bin" "$package/lib" "$work/licenses" "$out"
cp "$root"/packaging/python/*.py "$package/"
cp "$root/LICENSE" "$work/licenses/LICENSE"
install -D -m 644 "$root/src/run/python/tracker.py" "$package/share/trimtab/python/tracker.py"

# The build id depends on the folder of the build, by the debug information.
strip -R .note.gnu.build-id -o "$package/bin/trimtab" "$build/portable/trimtab"
# Of the machine come glibc and libgcc_s, which pthread_exit opens: every system of the tag has them.
mapfile -t bundled < <(libraries "$build/portable/trimtab" |
    grep -vE '/(libc|libm|libdl|librt|libpthread|libgcc_s)\.so\.[0-9]+$')
for library in "${bundled[@]}"; do install -m 644 "$library" "$package/lib/"; done
packages_of "${bundled[@]}" | sort -u | while read -r name library; do
    [ "$name" != - ] || fail "$library is in no Debian package: its licence is unknown"
    cp "/usr/share/doc/$name/copyright" "$work/licenses/$name"
done
# RPATH, not RUNPATH: LD_LIBRARY_PATH, which Conda environments set, must not replace a library.
# shellcheck disable=SC2016
patchelf --force-rpath --set-rpath '$ORIGIN/../lib' "$package/bin/trimtab"
# shellcheck disable=SC2016
patchelf --force-rpath --set-rpath '$ORIGIN' "$package"/lib/*.so*
plugin=
if [ -e "$build/libtrimtab_cuda.so" ] && [ "$cpu" != --cpu ]; then
    # Beside it are the folders of NVIDIA's own wheels, which the extra `cuda` installs.
    plugin=$package/lib/trimtab/libtrimtab_cuda.so
    mkdir "$package/lib/trimtab"
    strip -R .note.gnu.build-id -o "$plugin" "$build/libtrimtab_cuda.so"
    major=$(readelf -d "$plugin" | sed -n 's/.*libcublasLt\.so\.\([0-9]*\).*/\1/p')
    # shellcheck disable=SC2016
    site='$ORIGIN/../../../nvidia'
    patchelf --set-rpath "$site/cu$major/lib:$site/cudnn/lib:$site/nccl/lib:$site/cublas/lib" "$plugin"
fi
find "$work/wheel" -type f -exec chmod 644 {} +
chmod 755 "$package/bin/trimtab"

minor=$(find "$package" -type f -not -name "*.py" -exec readelf -VW {} + | grep -oE "Name: GLIBC_2\.[0-9]+" |
    sort -t. -k2 -n | tail -n 1 | cut -d. -f2)
python3 "$root/packaging/wheel.py" --folder "$work/wheel" --licenses "$work/licenses" --out "$out" --version "$(version)" \
    --tag "py3-none-manylinux_2_${minor}_$(uname -m)" --time "$(epoch)" ${plugin:+--cuda "$major"} --readme "$root/README.md"
