# shellcheck shell=bash
# Sourced by the scripts that package the program with its libraries: the files that it needs, and where they are from.

# fail MESSAGE
fail() {
    echo "error: $*" >&2
    exit 1
}

# need PROGRAM PACKAGE
need() {
    command -v "$1" >/dev/null || fail "$1 is missing; in Debian it is in the package $2"
}

# The time of all files: SOURCE_DATE_EPOCH, or that of the last commit, or the first that a zip archive can hold.
epoch() {
    echo "${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2>/dev/null || echo 315532800)}"
}

revision() {
    git -C "$root" rev-parse HEAD 2>/dev/null || echo unknown
}

version() {
    sed -n 's/^#define TT_VERSION "\(.*\)"$/\1/p' "$root/include/trimtab.h"
}

# libraries FILE...: the libraries that the loader opens for these files, without duplicates. One that is not found is
# an error. The loader itself is not among them.
libraries() {
    local found
    found=$(ldd "$@" 2>&1) || fail "ldd $*: $found"
    ! grep -F 'not found' <<<"$found" >&2 || fail "libraries are missing, see above"
    sed -n 's/^.* => \(\/[^ ]*\) (0x.*$/\1/p' <<<"$found" | sort -u
}

# loader FILE: the path of the loader that a program names.
loader() {
    readelf -lW "$1" | sed -n 's/^.*program interpreter: \(.*\)\]$/\1/p'
}

# library_file NAME: the path of a library that is opened at run time.
library_file() {
    /sbin/ldconfig -p | sed -n "s/^\t$1 (.* => \(.*\)$/\1/p" | head -n 1
}

# packages_of FILE...: a line "PACKAGE FILE" for each file; "-" stands for a file that is in no Debian package.
packages_of() {
    local file real
    local -A owner=()
    while read -r name path; do
        owner[$path]=${name%%[:,]*}
    done < <(for file in "$@"; do
        real=$(realpath "$file")
        printf '%s\n' "$file" "$real" "/usr${file#/usr}" "/usr${real#/usr}" "${file#/usr}" "${real#/usr}"
    done | sort -u | xargs dpkg-query -S 2>/dev/null)
    for file in "$@"; do
        real=$(realpath "$file")
        for path in "$file" "$real" "/usr${file#/usr}" "/usr${real#/usr}" "${file#/usr}" "${real#/usr}"; do
            name=${owner[$path]:--}
            [ "$name" = - ] || break
        done
        echo "$name $file"
    done
}

# The names under which NVIDIA's libraries are opened: by the plugin, and NVRTC by cuDNN's engines and cuBLASLt.
# shellcheck disable=SC2034
nvidia_patterns=('libcublasLt\.so\.[0-9]+' 'libcudnn(_[a-z_]+)?\.so\.9' 'libnccl\.so\.2' 'libnvrtc\.so\.[0-9]+'
    'libnvrtc-builtins\.so\.[0-9]+\.[0-9]+')

# nvidia_libraries FOLDER:FOLDER...: the paths of these files, each name once.
nvidia_libraries() {
    local folders folder pattern
    IFS=: read -ra folders <<<"$1"
    for folder in "${folders[@]}"; do
        for pattern in "${nvidia_patterns[@]}"; do
            find "$folder" -maxdepth 1 -regextype egrep -regex ".*/$pattern" 2>/dev/null | sort
        done
    done | awk -F/ '!seen[$NF]++'
}
