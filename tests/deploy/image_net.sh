#!/bin/bash
# The image cpu-net of deploy/image.sh: that of cpu with libcurl, its libraries and certificates of authorities in a layer
# of their own, which is the same for every version of the program; a name of the hub is fetched in it, and the plain image
# says what it lacks. Needs umoci and, to run, root.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
command -v umoci >/dev/null || { echo "skipped: there is no umoci"; exit 77; }
[ -x "$build/portable/trimtab" ] || { echo "skipped: a build with sanitizers has no portable program"; exit 77; }
[ -s /etc/ssl/certs/ca-certificates.crt ] || { echo "skipped: there is no ca-certificates"; exit 77; }
/sbin/ldconfig -p | grep -q 'libcurl\.so\.4 ' || { echo "skipped: there is no libcurl"; exit 77; }
layers() {
    sed -n 's/.*"manifests":\[{[^}]*"digest":"sha256:\([0-9a-f]*\)".*/\1/p' "$1/index.json" | xargs -I{} cat "$1/blobs/sha256/{}" |
        grep -o '"layers":.*' | grep -o 'sha256:[0-9a-f]*' | cut -d: -f2
}
for time in 1 2; do
    SOURCE_DATE_EPOCH=$time "$root/deploy/image.sh" cpu-net "$build" net$time >made 2>log || { cat log; exit 1; }
    layers net$time >layers$time
done
cat made
[ "$(wc -l <layers1)" = 2 ] && [ "$(comm -12 <(sort layers1) <(sort layers2))" = "$(head -n 1 layers1)" ] ||
    fail "the first layer changes with the second: $(cat layers1 layers2)"
tar -tzf "net1/blobs/sha256/$(head -n 1 layers1)" >listed
grep -q '/libcurl\.so\.4$' listed && grep -q '/ca-certificates\.crt$' listed && ! grep -q 'usr/bin' listed ||
    fail "the first layer: $(cat listed)"
[ "$(sed -n 's/.*sha256:[0-9a-f]* \([0-9]*\) bytes.*/\1/p' made)" -le 25000000 ] || fail "the size: $(cat made)"
umoci unpack --rootless --image net1:latest bundle 2>log || { cat log; exit 1; }
tree=$folder/bundle/rootfs
bill=$tree/usr/share/doc/trimtab/sbom.spdx.json
grep -q '"name":"libcurl4' "$bill" && grep -q '"name":"ca-certificates"' "$bill" || fail "the bill of materials: $(cat "$bill")"
for package in $(sed -n 's/.*"SPDXID":"SPDXRef-deb-[^"]*","name":"\([^"]*\)".*/\1/p' "$bill"); do
    [ -s "$tree/usr/share/doc/$package/copyright" ] || fail "$package has no licence"
done
"$root/deploy/image.sh" cpu "$build" plain >made 2>log || { cat log; exit 1; }
cat made
umoci unpack --rootless --image plain:latest plain_bundle 2>log || { cat log; exit 1; }
[ "$(id -u)" -eq 0 ] || { echo "skipped: only root runs what is in an image"; finish; }
source "$root/tests/tools/hub_server.sh"
mkdir -p hub_root/models/some/thing && head -c 5000 /dev/urandom >hub_root/models/some/thing/big.bin
# in_image TREE WORDS...
in_image() { HF_HOME=/tmp/hf chroot "$1" /usr/bin/trimtab "${@:2}"; }
in_image "$tree" download some/thing >said 2>err || fail "the image with libcurl: $(cat err)"
cmp "$tree$(cat said)/big.bin" hub_root/models/some/thing/big.bin || fail "the file differs"
in_image "$folder/plain_bundle/rootfs" download some/thing >said 2>err && fail "the plain image has a libcurl"
grep -q "needs libcurl" err && grep -q "the image with -net in its name" err || fail "the plain image: $(cat err)"
finish
