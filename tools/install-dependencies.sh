#!/usr/bin/env bash
# Installs the missing Debian packages and prints their names; does nothing when none is missing. Existing libraries
# and tools count wherever they are from. Without root and without sudo only a missing required package is an error.
#
#     tools/install-dependencies.sh build     to build trimtab
#     tools/install-dependencies.sh test      to build and run its tests too
#     tools/install-dependencies.sh fuzz      to build and run the fuzz targets with libFuzzer
#     tools/install-dependencies.sh threads   to build the tests with clang's thread sanitizer
set -euo pipefail

has_command() { command -v "$1" >/dev/null; }
has_library() { has_command pkg-config && pkg-config --exists "$1"; }
# Whether clang links with these options; libFuzzer has a main of its own.
has_clang() { has_command clang && echo 'int LLVMFuzzerTestOneInput(void); int LLVMFuzzerTestOneInput(void) { return 0; }
#ifndef WITHOUT_MAIN
int main(void) { return 0; }
#endif' | clang "$@" -x c - -o /dev/null 2>/dev/null; }
has_header() { has_command "${CC:-cc}" && printf '#include <%s>\n' "$1" | "${CC:-cc}" -E - >/dev/null 2>&1; }
# "package: command that succeeds when it is installed"
required=(
    "gcc: has_command ${CC:-cc}"
    "libc6-dev: has_header stdio.h"
    "cmake: has_command cmake"
    "ninja-build: has_command ninja || has_command make"
    "pkg-config: has_command pkg-config"
    "libyaml-dev: has_library yaml-0.1"
    "libpcre2-dev: has_library libpcre2-8"
    "libutf8proc-dev: has_library libutf8proc"
    "liblzma-dev: has_library liblzma"
    "libsodium-dev: has_library libsodium"
    "zlib1g-dev: has_library zlib"
    "libzstd-dev: has_library libzstd"
)
optional=(
    "libjpeg62-turbo-dev: has_library libjpeg"
    "libspng-dev: has_library spng"
    "libcairo2-dev: has_library cairo"
)
case ${1:-build} in
build) ;;
test)
    required+=("libcmocka-dev: has_library cmocka")
    optional+=(
        "python3: has_command python3"
        "python3-jsonschema: python3 -c 'import jsonschema'"
        "python3-yaml: python3 -c 'import yaml'"
        "libopenmpi-dev: has_command mpicc"
        "openmpi-bin: has_command mpirun"
        "clang-format-14: has_command clang-format-14"
        "zsh: has_command zsh"
        "mandoc: has_command mandoc"
        "groff-base: has_command groff"
        "python3-prometheus-client: /usr/bin/python3 -c 'import prometheus_client'"
        "umoci: has_command umoci"
        "crun: has_command crun"
        "iproute2: has_command ip"
        "curl: has_command curl"
        "liblapack3: /sbin/ldconfig -p | grep -qE 'lib(lapack.so.3|openblas.so.0)'"
        "patchelf: has_command patchelf"
        "python3-venv: python3 -c 'import ensurepip'"
        "debhelper: has_command dh"
        "lintian: has_command lintian"
        "locales: test -e /usr/share/i18n/locales/de_DE"
    )
    ;;
fuzz | threads)
    libraries="-fsanitize=fuzzer -DWITHOUT_MAIN"
    [ "$1" = fuzz ] || libraries=-fsanitize=thread
    required+=(
        "clang: has_command clang"
        "libclang-rt-dev: has_clang $libraries"
        "libomp-dev: has_clang -fopenmp"
    )
    ;;
*)
    echo "usage: $0 build|test|fuzz|threads" >&2
    exit 2
    ;;
esac

# missing ROW...: the packages of the rows that are not installed.
missing() {
    local row
    for row in "$@"; do
        eval "${row#*: }" || echo "${row%%: *}"
    done
}
mapfile -t needed < <(missing "${required[@]}")
mapfile -t wanted < <(missing "${optional[@]}")
[ $((${#needed[@]} + ${#wanted[@]})) -gt 0 ] || exit 0

stop() {
    echo "error: $1; have these installed and run this again (Debian's names): ${needed[*]}" >&2
    exit 1
}
# give_up REASON: fails when a required package is missing.
give_up() {
    [ ${#needed[@]} -eq 0 ] || stop "$1"
    echo "$1: going on without ${wanted[*]}; the tests that need them are skipped" >&2
    exit 0
}
has_command apt-get || give_up "there is no apt-get here"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
    has_command sudo || give_up "neither root nor sudo"
    as_root=(sudo)
    # sudo must not ask for a password when only optional packages are missing.
    [ ${#needed[@]} -gt 0 ] || as_root=(sudo -n)
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=120 \
        -o Acquire::Retries=3 "$@" >"$log" 2>&1 </dev/null
}
install() {
    echo "installing with apt: $*" >&2
    apt install --no-install-recommends "$@"
}
if ! apt update; then
    cat "$log" >&2
    give_up "apt could not update its lists"
fi
known=()
for package in "${wanted[@]}"; do
    if [ -n "$(apt-cache madison "$package" 2>/dev/null)" ]; then
        known+=("$package")
    else
        echo "this release has no $package; the tests that need it are skipped" >&2
    fi
done
# One call for all packages is quickest. If an optional package cannot be installed the others are installed without
# it.
if [ $((${#needed[@]} + ${#known[@]})) -eq 0 ] || install "${needed[@]}" "${known[@]}"; then
    exit 0
fi
if [ ${#needed[@]} -gt 0 ] && ! install "${needed[@]}"; then
    cat "$log" >&2
    stop "apt could not install what is missing"
fi
for package in "${known[@]}"; do
    install "$package" || echo "apt could not install $package; the tests that need it are skipped" >&2
done
