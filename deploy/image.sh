#!/usr/bin/env bash
# Builds a container image as an OCI layout, without a daemon and without root: the program, the libraries that it needs,
# and nothing else. Two runs over the same build give the same digest, which is printed.
#
#     deploy/image.sh cpu|gpu|gpu-base[-net] BUILD LAYOUT [TAG]
#
# BUILD is a build folder of this repository (tools/build.sh), LAYOUT the folder to write, TAG the name of the image in
# it (default: latest). gpu adds the plugin, and cuBLASLt, cuDNN, NCCL and NVRTC in a layer of their own, which is the same
# for every version of the program; gpu-base has no such layer, for nodes that mount these libraries or bases that have
# them. Each has a sibling with -net behind its name (cpu-net), which adds libcurl, its libraries and Debian's certificates
# of authorities in a layer of their own, for names of the hub and addresses of object stores. CUDA_LIBRARIES=FOLDER:FOLDER names where they are if not in the folder of cuBLASLt. SOURCE=URL is the label
# org.opencontainers.image.source.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=deploy/closure.sh
source "$root/deploy/closure.sh"
[ $# -ge 3 ] || { sed -n '5,13p' "${BASH_SOURCE[0]}" >&2; exit 2; }
kind=$1 build=$2 layout=$3 tag=${4:-latest}
need umoci umoci
need strip binutils
[ -x "$build/portable/trimtab" ] || fail "$build has no portable/trimtab: build its target trimtab_portable"
[ ! -e "$layout" ] || fail "$layout exists"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/tree
triple=$(gcc -print-multiarch)
libdir=usr/lib/$triple

# The loader finds /lib and /lib64 as in Debian. NVIDIA's container toolkit sees by debian_version where libraries are.
mkdir -p "$tree/usr/bin" "$tree/$libdir" "$tree/usr/lib64" "$tree"/{etc,dev,proc,sys,run,tmp,var/lib/dpkg/status.d}
ln -s usr/lib "$tree/lib"
ln -s usr/lib64 "$tree/lib64"
cp /etc/debian_version "$tree/etc/"

# The build id depends on the folder of the build, by the debug information.
strip -R .note.gnu.build-id -o "$tree/usr/bin/trimtab" "$build/portable/trimtab"
interpreter=$(loader "$tree/usr/bin/trimtab")
install -D -m 755 "$interpreter" "$tree$interpreter"
files=("$build/portable/trimtab")
# pthread_exit, with which OpenMP's threads end, opens it at run time.
opened=("$(library_file libgcc_s.so.1)")
environment=() curl='' authorities=/etc/ssl/certs/ca-certificates.crt
if [ "$kind" != "${kind%-net}" ]; then
    curl=$(library_file libcurl.so.4)
    [ -n "$curl" ] || fail "there is no libcurl.so.4; in Debian it is in the package libcurl4"
    [ -s "$authorities" ] || fail "there is no $authorities; in Debian it is of the package ca-certificates"
fi
case ${kind%-net} in
cpu) ;;
gpu | gpu-base)
    plugin=$build/libtrimtab_cuda.so
    [ -e "$plugin" ] || fail "$build has no GPU plugin; docs/dependencies.md has what it needs"
    install -D "$plugin" "$tree/usr/lib/trimtab/libtrimtab_cuda.so"
    strip -R .note.gnu.build-id "$tree/usr/lib/trimtab/libtrimtab_cuda.so"
    files+=("$plugin")
    beside=$(dirname "$(libraries "$plugin" | grep /libcublasLt)")
    from=${CUDA_LIBRARIES:+$CUDA_LIBRARIES:}$beside
    mapfile -t nvidia < <(nvidia_libraries "$from")
    opened+=("${nvidia[@]}")
    [ "${kind%-net}" = gpu-base ] || "$root/deploy/nvidia.sh" "$from" "$work/nvidia/$libdir"
    # The driver's libraries are the node's: these ask the container toolkit for them.
    environment=(--config.env 'NVIDIA_DRIVER_CAPABILITIES=compute,utility'
        --config.env LD_LIBRARY_PATH=/usr/local/nvidia/lib:/usr/local/nvidia/lib64)
    ;;
*) fail "the kind is cpu, gpu or gpu-base, or one of these with -net, not '$kind'" ;;
esac
mapfile -t closure < <({ libraries "${files[@]}" "${opened[@]}"; printf '%s\n' "${opened[@]}"; } | sort -u)
is_nvidia() {
    local pattern
    for pattern in "${nvidia_patterns[@]}"; do
        if grep -qxE "$pattern" <<<"${1##*/}"; then return 0; fi
    done
    return 1
}
ours=()
for library in "${closure[@]}"; do
    is_nvidia "$library" || ours+=("$library")
done
for library in "${ours[@]}"; do install -m 644 "$library" "$tree/$libdir/"; done
[ "${kind%-net}" = gpu ] || closure=("${ours[@]}")
more=()
if [ -n "$curl" ]; then # what the program's own layer has not
    mkdir -p "$work/net/$libdir"
    mapfile -t more < <({ libraries "$curl"; echo "$curl"; } | sort -u | grep -vxF -f <(printf '%s\n' "${closure[@]}"))
    for library in "${more[@]}"; do install -m 644 "$library" "$work/net/$libdir/"; done
    install -D -m 644 "$authorities" "$work/net$authorities"
    closure+=("${more[@]}")
fi

# The bill of materials: Debian's own entries, as scanners of images read them, the licences, and one SPDX document.
packages_of "${closure[@]}" "$interpreter" >"$work/owners"
packages=$({ cut -d' ' -f1 "$work/owners" | grep -vx -e -; [ -z "$curl" ] || echo ca-certificates; } | sort -u)
for package in $packages; do
    dpkg-query -s "$package" >"$tree/var/lib/dpkg/status.d/$package"
    install -D -m 644 "/usr/share/doc/$package/copyright" "$tree/usr/share/doc/$package/copyright"
done
install -D -m 644 "$root/LICENSE" "$tree/usr/share/doc/trimtab/LICENSE"
{
    printf '{"spdxVersion":"SPDX-2.3","dataLicense":"CC0-1.0","SPDXID":"SPDXRef-DOCUMENT","name":"trimtab-%s",' "$kind"
    printf '"documentNamespace":"urn:trimtab:%s:%s:%s",' "$kind" "$(version)" "$(revision)"
    printf '"creationInfo":{"created":"%s","creators":["Tool: deploy/image.sh"]},\n"packages":[\n' \
        "$(date -u -d "@$(epoch)" +%Y-%m-%dT%H:%M:%SZ)"
    printf '{"SPDXID":"SPDXRef-trimtab","name":"trimtab","versionInfo":"%s","downloadLocation":"NOASSERTION",' "$(version)"
    printf '"licenseDeclared":"Apache-2.0","filesAnalyzed":false}'
    # shellcheck disable=SC2086
    dpkg-query -W -f '${Package} ${Version} ${Architecture}\n' $packages | while read -r package number architecture; do
        printf ',\n{"SPDXID":"SPDXRef-deb-%s","name":"%s","versionInfo":"%s",' "$(tr '_+' '--' <<<"$package")" "$package" "$number"
        printf '"downloadLocation":"NOASSERTION","filesAnalyzed":false,"externalRefs":[{"referenceCategory":"PACKAGE-MANAGER",'
        printf '"referenceType":"purl","referenceLocator":"pkg:deb/debian/%s@%s?arch=%s"}]}' "${package//+/%2B}" \
            "$(sed 's/+/%2B/g; s/:/%3A/g' <<<"$number")" "$architecture"
    done
    sed -n 's/^- //p' "$work/owners" | while read -r library; do
        printf ',\n{"SPDXID":"SPDXRef-file-%s","name":"%s","versionInfo":"NOASSERTION",' "$(tr '_+' '--' <<<"${library##*/}")" \
            "${library##*/}"
        printf '"downloadLocation":"NOASSERTION","filesAnalyzed":false,"checksums":[{"algorithm":"SHA256","checksumValue":"%s"}]}' \
            "$(sha256sum "$library" | cut -d' ' -f1)"
    done
    printf '\n]}\n'
} >"$tree/usr/share/doc/trimtab/sbom.spdx.json"

# layer TREE FILE TIME
layer() {
    find "$1" -type d -exec chmod 755 {} +
    find "$1" -type f -exec chmod 644 {} +
    for program in "$1/usr/bin/trimtab" "$1$interpreter"; do [ ! -e "$program" ] || chmod 755 "$program"; done
    [ ! -e "$1/tmp" ] || chmod 1777 "$1/tmp"
    tar -C "$1" --sort=name --mtime="@$3" --owner=0 --group=0 --numeric-owner --format=gnu -cf "$2" .
}
layers=()
for below in nvidia net; do # below the program's, with a time that is no commit's, so that nodes keep them
    [ -d "$work/$below" ] || continue
    layer "$work/$below" "$work/$below.tar" 315532800
    layers+=("$work/$below.tar")
done
layer "$tree" "$work/layer.tar" "$(epoch)"
layers+=("$work/layer.tar")

# A remote may have a password in it, or be a folder of this machine.
source=${SOURCE:-$({ git -C "$root" remote get-url origin 2>/dev/null || true; } | sed -n 's#^https://\([^/@]*@\)\?#https://#p')}
created=$(date -u -d "@$(epoch)" +%Y-%m-%dT%H:%M:%SZ)
umoci init --layout "$work/layout"
umoci new --image "$work/layout:$tag"
for file in "${layers[@]}"; do
    umoci raw add-layer --image "$work/layout:$tag" --history.created "$created" \
        --history.created_by "deploy/image.sh $kind" "$file"
done
umoci config --image "$work/layout:$tag" --no-history --created "$created" --os linux \
    --architecture "$(dpkg --print-architecture)" --config.user 65532:65532 --config.entrypoint /usr/bin/trimtab \
    --config.stopsignal SIGTERM "${environment[@]}" \
    --config.label "org.opencontainers.image.title=trimtab" \
    --config.label "org.opencontainers.image.version=$(version)" \
    --config.label "org.opencontainers.image.revision=$(revision)" \
    --config.label "org.opencontainers.image.licenses=Apache-2.0" \
    --config.label "org.opencontainers.image.source=${source:-unknown}"
umoci gc --layout "$work/layout" >"$work/gc" 2>&1 || { cat "$work/gc" >&2; exit 1; }
mv "$work/layout" "$layout"
digest=$(sed -n 's/.*"digest":"\(sha256:[0-9a-f]*\)".*/\1/p' "$layout/index.json")
bytes=$(find "$layout/blobs" -type f -printf '%s\n' | awk '{ n += $1 } END { print n }')
echo "$layout:$tag $kind $digest $bytes bytes compressed, $(du -sbc "$tree" "$work"/nvidia "$work"/net 2>/dev/null | tail -n 1 | cut -f1) unpacked"
