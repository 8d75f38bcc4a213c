#!/bin/bash
# trimtab plot: curves of runs as SVG and as a page; their size does not grow with the number of rows.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
# run FOLDER ROWS: a run whose loss is 1000 / step, and at step 700 of many 9999
run() {
    mkdir -p "$1"
    awk -v rows="$2" 'BEGIN { for (i = 1; i <= rows; i++) printf "{\"step\": %d, \"loss\": %g, \"learning_rate\": 1e-4, " \
        "\"grad_norm\": 0.5, \"tokens_per_second\": 100, \"step_seconds\": 1.0, \"forward_seconds\": 0.7}\n", i,
        i == 700 ? 9999 : 1000 / i }' >"$1/metrics.jsonl"
}
run long 100000
run 'a <b> & "c"' 10
TIMEFORMAT=%U
{ time "$trimtab" plot long 'a <b> & "c"' --output two.svg >out 2>&1 || fail "two runs: $(cat out)"; } 2>took
[ "$(cut -d. -f1 took)" -lt 5 ] || fail "100,010 rows take $(cat took) s of a processor"
[ "$(grep -c '<polyline' two.svg)" = 8 ] || fail "not two curves in each of four panels"
grep -q '>a &lt;b> &amp; &quot;c&quot;</text>' two.svg || fail "the name of a run is not text"
grep -q '>9999</text>' two.svg || fail "a single high value is lost among many"
[ "$(wc -c <two.svg)" -lt 200000 ] || fail "$(wc -c <two.svg) bytes"
"$trimtab" plot long --output page.html >out 2>&1 || fail "a page: $(cat out)"
for part in '^<!doctype html>' 'prefers-color-scheme:dark' 'name="viewport"' '"forward_seconds":{"mean":0.7,' '9999,'; do
    grep -q "$part" page.html || fail "the page has no $part"
done
[ "$(wc -c <page.html)" -lt 200000 ] || fail "$(wc -c <page.html) bytes"
grep -v 'Content-Security-Policy' page.html | grep -Eo '(src|href|url|@import)[=( ]' && fail "the page loads something"
if command -v xmllint >/dev/null; then xmllint --noout two.svg || fail "the drawing is not XML"; fi

# A run without a row, one row, a torn row.
mkdir empty && : >empty/metrics.jsonl
"$trimtab" plot empty --output empty.svg >out 2>&1 || fail "an empty run: $(cat out)"
printf '{"step": 1, "loss": 2.0}\n{"step": 2, "lo' >empty/metrics.jsonl
"$trimtab" plot empty --output one.svg >out 2>&1 || fail "one row: $(cat out)"
grep -q '<circle' one.svg || fail "one point is not drawn"
grep -q 'nan\|inf' one.svg empty.svg two.svg && fail "a place is not a number"
expect 2 "plot needs the folders" plot --output x.svg
expect 2 "ends with neither .svg, .png nor .html" plot long --output x.gif
expect 2 "--format svg|png|html" plot long --output x
expect 2 "format" plot long --output x.svg --format gif
"$trimtab" plot empty --output drawing --format svg >out 2>&1 || fail "another name: $(cat out)"
cmp -s drawing one.svg || fail "--format svg writes something else than a name with .svg"

# 64 runs: a colour for each, names beside each other, one range of steps in every panel, numbers in digits.
many=()
for i in $(seq 64); do
    mkdir "run-$i" && many+=("run-$i")
    printf '{"step": %d, "loss": %d, "tokens_per_second": 43210}\n' "$i" 2 $((i + 100)) 1 >"run-$i/metrics.jsonl"
    echo '{"step": 90, "eval_loss": 1.5}' >>"run-$i/metrics.jsonl"
done
"$trimtab" plot "${many[@]}" --output many.svg >out 2>&1 || fail "64 runs: $(cat out)"
[ "$(grep '<polyline' many.svg | grep -o '#[0-9a-f]\{6\}' | sort -u | wc -l)" = 64 ] || fail "colours of 64 runs repeat"
[ "$(grep -c '>1</text>' many.svg)" -ge 3 ] && [ "$(grep -c '>step 164</text>' many.svg)" = 3 ] ||
    fail "panels have other ranges of steps:" "$(grep -o 'step [0-9]*<' many.svg)"
grep -q '>43210</text>' many.svg || fail "no number in digits:" "$(grep -o '>[0-9.e+]*</text>' many.svg)"
height=$(sed -nE '1s/.*viewBox="0 0 900 ([0-9]+).*/\1/p' many.svg)
[ "${height:-9999}" -lt $((3 * 210 + 22 * 22 + 11)) ] || fail "the names of 64 runs are ${height:-?} high"

echo leak:libfontconfig >leaks # for builds with sanitizers: it keeps what it has read of the fonts
export LSAN_OPTIONS=suppressions=$PWD/leaks
# PNG (tests/cli/plot_png.c looks at its pixels): many runs, no run with a row, no cairo.
if "$trimtab" plot long 'a <b> & "c"' --output two.png >out 2>&1; then
    [ "$(head -c 8 two.png | tail -c 7 | head -c 3)" = PNG ] || fail "two.png is no PNG file"
    : >empty/metrics.jsonl
    "$trimtab" plot empty --output two.png.copy --format png >out 2>&1 || fail "an empty run as PNG: $(cat out)"
    mapfile -t many < <(yes 'a <b> & "c"' | head -n 64)
    "$trimtab" plot "${many[@]}" --output many.png >out 2>&1 || fail "64 runs: $(cat out)"
    mkdir broken && echo "no library" >broken/libcairo.so.2
    LD_LIBRARY_PATH=$PWD/broken expect 2 "libcairo.so.2" plot long --output broken.png
    grep -q "hint: install cairo" err || fail "no remedy for a machine without cairo: $(cat err)"
    [ ! -e broken.png ] || fail "a file without a drawing"
else
    grep -q "built without cairo" out || fail "PNG: $(cat out)"
    echo "skipped: PNG: this build has no cairo"
fi
expect 3 "has no metrics.jsonl" plot nowhere --output x.svg
finish
