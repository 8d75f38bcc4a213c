#!/bin/bash
# The commands in README.md and docs/ work. Every ```sh block is preceded by one of these lines:
#
#     <!-- test -->               the block is run here, and must not fail
#     <!-- test: PROGRAM -->      the same, where PROGRAM is installed, and with mpirun in builds that have MPI
#     <!-- not run: REASON -->
#
# The blocks of a page are run in order in one folder of their own, with the program on PATH, a tiny model as model/
# and rows of prompt and completion as train.jsonl and test.jsonl; examples/ is there too. Links between pages are
# checked too.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
export PATH=$build:$PATH
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export ASAN_OPTIONS=detect_leaks=0 # MPI's own would fail a build with sanitizers; other tests look for ours
unset LOCAL_RANK SLURM_STEP_ID OMPI_COMM_WORLD_SIZE PMI_SIZE PMIX_RANK
blocks=0
servers=()
trap '[ ${#servers[@]} -eq 0 ] || kill "${servers[@]}"; rm -rf "$folder"' EXIT

prepare() {
    mkdir -p "$1" && cd "$1" && ln -s "$root/examples" examples || exit 1
    cp -r "$root/tests/golden/qwen2/model" model && cp "$root"/tests/support/tiny_tokenizer/* model/ || exit 1
    for i in $(seq 48); do echo "{\"prompt\": \"$i + 1 =\", \"completion\": \" $((i + 1))\"}"; done >train.jsonl
    for i in $(seq 101 108); do echo "{\"prompt\": \"$i + 1 =\", \"completion\": \" $((i + 1))\"}"; done >test.jsonl
}

# Writes the blocks of a page as 0001.sh .., the content of their first line as 0001.mark and the line number as
# 0001.line.
extract() {
    awk -v to="$2" '
        /^```sh$/ { inside = 1; count++; name = sprintf("%s/%04d", to, count)
                    print mark > (name ".mark"); print NR > (name ".line"); printf "" > (name ".sh"); next }
        /^```/ && inside { inside = 0; mark = ""; next }
        inside { print > (name ".sh"); next }
        /^<!-- .* -->$/ { mark = $0; next }
        /[^ ]/ { mark = "" }' "$1"
}

# A page about object storage: the S3 server of the tests, whose bucket has the model and the rows. Fails where there is no
# libcurl.
serve_objects() {
    python3 -c 'import ctypes; ctypes.CDLL("libcurl.so.4")' 2>/dev/null || return 1
    mkdir -p "$1.server"
    python3 "$root/tests/tools/s3_server.py" "$1.server" >/dev/null 2>&1 &
    servers+=($!)
    for _ in $(seq 1000); do [ -e "$1.server/port" ] && break || sleep 0.1; done
    AWS_ENDPOINT_URL=http://127.0.0.1:$(cat "$1.server/port")
    export AWS_ENDPOINT_URL AWS_ACCESS_KEY_ID=AKIDTEST AWS_SECRET_ACCESS_KEY=secretTESTkey
    python3 -c 'import sys, urllib.request as r; r.build_opener(r.ProxyHandler({})).open(sys.argv[1])' \
        "$AWS_ENDPOINT_URL/-/load?folder=$1"
}

run_page() {
    local page=$1 work program mark
    work=$folder/$(basename "$page" .md)
    mkdir -p "$work.blocks"
    extract "$page" "$work.blocks"
    (prepare "$work") || exit 1
    if grep -q '^<!-- server: s3 -->$' "$page"; then
        serve_objects "$work" || return 0
    fi
    for block in "$work".blocks/*.sh; do
        [ -e "$block" ] || continue
        where="$(basename "$page") line $(cat "${block%.sh}.line")"
        mark=$(cat "${block%.sh}.mark")
        case $mark in
        '<!-- not run: '*) continue ;;
        '<!-- test -->') ;;
        '<!-- test: '*)
            program=${mark#<!-- test: }
            command -v "${program% -->}" >/dev/null || continue
            [ "${program% -->}" != mpirun ] || ! trimtab version | grep -qE '^ *MPI +none' || continue
            ;;
        *)
            fail "$where: a block of commands without a mark"
            continue
            ;;
        esac
        blocks=$((blocks + 1))
        (cd "$work" && bash -eu -o pipefail "$block" >"$block.log" 2>&1 </dev/null) ||
            fail "$where: exit $? of" "$(cat "$block")" "---" "$(tail -n 20 "$block.log")"
    done
}

for page in "$root"/README.md "$root"/docs/*.md; do
    run_page "$page"
    # [text](page.md#part): the page must exist
    while read -r link; do
        [ -e "$(dirname "$page")/$link" ] || fail "$(basename "$page") links to $link, which is not there"
    done < <(grep -oE '\]\([^)]+\)' "$page" | sed -E 's/^\]\(//; s/\)$//; s/#.*//' | grep -vE '^(https?:|$)')
done
[ $blocks -gt 0 ] || fail "no block was found"
[ $failures -eq 0 ] && echo "all as expected: $blocks blocks"
exit $((failures > 0))
