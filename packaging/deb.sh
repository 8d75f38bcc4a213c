#!/usr/bin/env bash
# Builds the Debian packages in a clean copy of this tree, with dpkg-buildpackage, and writes them into a folder.
#
#     packaging/deb.sh FOLDER [--cuda] [--prebuilt BUILD]
#
# --cuda also builds trimtab-cuda, the plugin for GPUs (needs nvcc). --prebuilt packages the files of an existing build
# folder instead of compiling. DEBFULLNAME and DEBEMAIL are the maintainer of the packages, DEB_BUILD_OPTIONS as in Debian
# Policy (parallel=2, noautodbgsym). Times in the packages are those of the last commit, or SOURCE_DATE_EPOCH.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=deploy/closure.sh
source "$root/deploy/closure.sh"
out='' profiles='' prebuilt=''
while [ $# -gt 0 ]; do
    case $1 in
    --cuda) profiles=pkg.trimtab.cuda ;;
    --prebuilt) prebuilt=$(cd "$2" && pwd) && shift ;;
    -*) fail "unknown option $1" ;;
    *) out=$1 ;;
    esac
    shift
done
[ -n "$out" ] || { sed -n '4,8p' "${BASH_SOURCE[0]}" >&2; exit 2; }
need dpkg-buildpackage dpkg-dev
need dh debhelper
mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/trimtab-$(version)

mkdir "$tree"
cp -a "$root"/{CMakeLists.txt,LICENSE,README.md,ARCHITECTURE.md,cmake,docs,examples,include,src} "$tree/"
cp -a "$root/packaging/debian" "$tree/debian"
soversion=$(version | cut -d. -f1,2) # as in cmake/library.cmake
maintainer="${DEBFULLNAME:-$(git -C "$root" log -1 --format=%an 2>/dev/null || echo unknown)}"
maintainer+=" <${DEBEMAIL:-$(git -C "$root" log -1 --format=%ae 2>/dev/null || echo unknown@localhost)}>"
sed -i "s/@MAINTAINER@/$maintainer/; s/@SOVERSION@/$soversion/" "$tree/debian/control"
mv "$tree/debian/libtrimtab.install" "$tree/debian/libtrimtab$soversion.install"
SOURCE_DATE_EPOCH=$(epoch)
export SOURCE_DATE_EPOCH
printf 'trimtab (%s) unstable; urgency=medium\n\n  * Version %s, revision %s.\n\n -- %s  %s\n' "$(version)" "$(version)" \
    "$(revision | cut -c1-12)" "$maintainer" "$(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")" >"$tree/debian/changelog"

cuda=
[ -z "$profiles" ] || cuda=$(dirname "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)")/../lib64
log=$work/log
(cd "$tree" && TT_PREBUILT=$prebuilt TT_CUDA_LIBRARIES=$cuda dpkg-buildpackage -b -us -uc ${profiles:+-P$profiles} \
    ${prebuilt:+-d}) >"$log" 2>&1 || { tail -n 40 "$log" >&2; fail "dpkg-buildpackage failed"; }
mv "$work"/*.deb "$work"/*.changes "$work"/*.buildinfo "$out/"
ls "$out"/*.deb
