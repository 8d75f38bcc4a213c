#!/bin/bash
# The Debian packages of packaging/deb.sh, from the files of this build: lintian has no complaint, dependencies are
# complete, and program, manual pages, completions, library and its header work from where the packages put them.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
# shellcheck source=tests/tools/finds_follower.sh
source "$root/tests/tools/finds_follower.sh"
command -v dpkg-buildpackage >/dev/null && command -v dh >/dev/null || { echo "skipped: there is no dpkg-dev or debhelper"; exit 77; }
[ -x "$build/portable/trimtab" ] || { echo "skipped: a build with sanitizers is not packaged"; exit 77; }
export DEBFULLNAME="Trimtab Test" DEBEMAIL=test@debian.org DEB_BUILD_OPTIONS=noautodbgsym
"$root/packaging/deb.sh" packages --prebuilt "$build" >made 2>&1 || { cat made; exit 1; }
version=$("$trimtab" --version | cut -d' ' -f2)
so=$(cut -d. -f1,2 <<<"$version")
if command -v lintian >/dev/null; then
    lintian --allow-root --fail-on error,warning packages/*.changes >complaints 2>&1 || fail "lintian: $(cat complaints)"
else
    echo "skipped: there is no lintian to check the packages with"
fi
for name in trimtab "libtrimtab$so" libtrimtab-dev; do
    dpkg -x packages/"${name}_${version}"_*.deb tree || fail "there is no package $name"
    dpkg -f packages/"${name}_${version}"_*.deb >"$name.control"
done
# The package of each library that the program names is a dependency.
owners() {
    # shellcheck source=deploy/closure.sh
    source "$root/deploy/closure.sh"
    mapfile -t files < <(readelf -d tree/usr/bin/trimtab | sed -n 's/.*(NEEDED).*\[\(.*\)\]$/\1/p' | grep -v ld-linux |
        while read -r name; do library_file "$name"; done)
    packages_of "${files[@]}" | cut -d' ' -f1 | sort -u
}
(owners) >owners # in a process of its own: the sourced file has another `fail`
[ "$(wc -l <owners)" -ge 8 ] || fail "the libraries of the program are from $(cat owners)"
while read -r owner; do
    grep -qE "^Depends: (.*, )?$owner( |,|\$)" trimtab.control || fail "trimtab does not depend on $owner: $(cat trimtab.control)"
done <owners
grep -q "^Depends: .*libtrimtab$so (= $version)" libtrimtab-dev.control || fail "libtrimtab-dev: $(cat libtrimtab-dev.control)"
[ "$(tree/usr/bin/trimtab --version)" = "trimtab $version" ] || fail "the program that is packaged"
readelf -d tree/usr/bin/trimtab | grep -E 'RPATH|RUNPATH' && fail "the program has a search path of this machine"
tree/usr/bin/trimtab train --model_name_or_path "$root/examples/demo/model" --max_steps 1 --max_length 128 \
    --dataset_name "$root/examples/demo/data/train.jsonl" --output_dir out >log 2>&1 || fail "training: $(tail -n 3 log)"
finds_follower tree/usr/bin/trimtab tree/usr/share/trimtab/python/tracker.py
"$trimtab" help --man train >train.1
gzip -dc tree/usr/share/man/man1/trimtab-train.1.gz | cmp - train.1 || fail "the manual page of train"
"$trimtab" help --bash | cmp - tree/usr/share/bash-completion/completions/trimtab || fail "completion for bash"
"$trimtab" help --zsh | cmp - tree/usr/share/zsh/vendor-completions/_trimtab || fail "completion for zsh"
[ -e tree/usr/share/doc/trimtab/docs/quickstart.md ] || fail "the pages are not packaged"

libdir=$(dirname "$(find tree -name libtrimtab.so)")
readelf -d "$libdir/libtrimtab.so.$so" | grep -q "soname: \[libtrimtab.so.$so\]" || fail "the name of the library"
export PKG_CONFIG_PATH=$folder/$libdir/pkgconfig PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1 PKG_CONFIG_ALLOW_SYSTEM_LIBS=1
eval "flags=($(pkg-config --cflags --libs trimtab))"
# shellcheck disable=SC2154
${CC:-cc} -std=c17 tree/usr/share/doc/libtrimtab-dev/examples/train.c "${flags[@]}" -o train ||
    fail "an example does not build with the packaged library"
LD_LIBRARY_PATH=$libdir ./train >said 2>&1
[ $? -eq 2 ] || fail "the example: $(cat said)"
finish
