#!/bin/bash
# The installation of `cmake --install` is complete: a program outside the tree builds with pkg-config alone, in C
# and C++, and the library exports exactly what the header declares.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
# shellcheck source=tests/tools/finds_follower.sh
source "$root/tests/tools/finds_follower.sh"
cmake --install "$build" --prefix "$folder/usr" >log 2>&1 || { cat log; exit 1; }
cmp "$build/completion.bash" "$folder/usr/share/bash-completion/completions/trimtab" && "$build/trimtab" help --bash |
    cmp - "$build/completion.bash" || { echo "FAILED: the completion that is installed"; exit 1; }
"$build/trimtab" help --zsh | cmp - usr/share/zsh/site-functions/_trimtab || fail "the completion for zsh that is installed"
"$build/trimtab" help --man | cmp - usr/share/man/man1/trimtab.1 || fail "the manual page that is installed"
for command in $("$build/trimtab" help | sed -nE 's/^  ([a-z]+) .*/\1/p'); do
    "$build/trimtab" help --man "$command" | cmp - "usr/share/man/man1/trimtab-$command.1" || fail "no page of $command"
done
[ "$(find usr/include -type f | wc -l)" -eq 1 ] || fail "more than one header: $(find usr/include -type f)"
[ "$(usr/bin/trimtab --version)" = "trimtab $(sed -n 's/#define TT_VERSION "\(.*\)"/\1/p' usr/include/trimtab.h)" ] ||
    fail "program and header have different versions"
finds_follower usr/bin/trimtab usr/share/trimtab/python/tracker.py
pages=usr/share/doc/trimtab
cmp "$root/LICENSE" $pages/LICENSE || fail "no licence is installed"
[ "$(cd $pages && find docs -name '*.md' | sort)" = "$(cd "$root" && find docs -name '*.md' | sort)" ] || fail "not all pages are installed"
libdir=$(dirname "$(find usr -name libtrimtab.so)")
export PKG_CONFIG_PATH=$folder/$libdir/pkgconfig PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1
pkg-config --exact-version="$(usr/bin/trimtab --version | cut -d' ' -f2)" trimtab || fail "pkg-config has another version"

nm -D --defined-only "$libdir/libtrimtab.so" | awk '{print $NF}' | sort >shown
grep -oE '^TT_PUBLIC [^(]*[ *](tt_[a-z_]+)\(' usr/include/trimtab.h | grep -oE 'tt_[a-z_]+\($' | tr -d '(' | sort >declared
diff declared shown >difference || fail "declared (<) and shown (>) differ: $(cat difference)"

# A build with sanitizers needs them in the program that links the library too.
sanitizers=
grep -q '^TT_SANITIZE:BOOL=ON' "$build/CMakeCache.txt" && sanitizers=-fsanitize=address,undefined
# pkg-config quotes blanks for a shell.
eval "flags=($(pkg-config --cflags --libs trimtab))"
# shellcheck disable=SC2086,SC2154
${CC:-cc} -std=c17 -Wall -Wextra -Werror -pedantic $sanitizers "$root/examples/library/train.c" "${flags[@]}" \
    -o train || fail "train.c does not build outside"
LD_LIBRARY_PATH=$libdir ./train >said 2>&1
[ $? -eq 2 ] || fail "train built outside: $(cat said)"
if command -v c++ >/dev/null; then
    printf '#include <trimtab.h>\nint main() { return tt_version()[0] == 0; }\n' >use.cc
    # shellcheck disable=SC2086
    c++ -std=c++17 -Wall -Wextra -Werror -pedantic $sanitizers use.cc "${flags[@]}" -o use ||
        fail "the header is no C++"
    LD_LIBRARY_PATH=$libdir ./use || fail "use from C++"
else
    echo "skipped: there is no C++ compiler to try the header with"
fi
finish
