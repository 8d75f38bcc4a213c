#!/usr/bin/env bash
# The dashboard: of a training while it runs, of folders that ended, were killed, are torn or hostile; what it answers to
# strangers; the page in a browser where there is one: its first paint, its width on a phone, texts that stay texts.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
golden=$root/tests/golden/llama2
run=(train --model_name_or_path "$golden/model" --dataset_name "$golden/train.jsonl" --report_to none --device cpu)
mkdir empty && : >empty/metrics.jsonl
trap "" PIPE

# ask PORT PATH [HOST] [METHOD]: the answer, with its head
ask() {
    exec 3<>"/dev/tcp/127.0.0.1/$1" || return 1
    printf '%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n' "${4:-GET}" "$2" "${3:-localhost:$1}" >&3
    cat <&3 | tr -d '\r' 2>/dev/null
    exec 3>&-
}
body() { sed '1,/^$/d'; }
wait_for() {
    for _ in $(seq 400); do
        grep -q "$2" "$1" && return
        sleep 0.05
    done
    fail "$1 never had '$2':" "$(cat "$1")"
}
# serve FOLDERS...: sets $server and $port
serve() {
    "$trimtab" dashboard "$@" >served 2>&1 &
    server=$!
    wait_for served '^dashboard at'
    port=$(sed -nE 's|^dashboard at http://127.0.0.1:([0-9]+)/$|\1|p' served)
}
stop() {
    kill -TERM $server
    wait $server || fail "the dashboard ended with $?:" "$(cat served)"
}

# A training that runs.
"$trimtab" "${run[@]}" --output_dir alive --ranks 2 --max_steps 100000 --logging_steps 10 --save_steps 40 \
    --save_total_limit 1 --eval_dataset "$golden/train.jsonl" --eval_strategy steps --eval_steps 50 --dashboard true >said 2>&1 &
training=$!
wait_for said '^step 100/'
port=$(sed -nE 's|^dashboard at http://127.0.0.1:([0-9]+)/$|\1|p' said)
ask "$port" / | grep -q '<!doctype html>' || fail "no page"
# The first answer can be older than the rows.
parts=('"live":true' '"loss":{"steps":\[10,20' '"eval_loss":{' '"rank":1,' '"event": "save"' '"state": "running"'
    '"config": "# The resolved' '"device_bytes"')
for _ in $(seq 40); do
    ask "$port" /data >answer
    body <answer >data
    missing=
    for part in "${parts[@]}"; do grep -q "$part" data || missing+=" $part"; done
    [ -n "$missing" ] || break
    sleep 0.25
done
[ -z "$missing" ] || fail "the data of a run that goes on have no$missing"
[ "$(head -c 1000 data | grep -o '"now"' | wc -l)" = 1 ] || fail "no clock"
ask "$port" /data evil.example | grep -q '^HTTP/1.1 403' || fail "another name is answered"
for host in 127.0.0.1 '[::1]:80' localhost; do
    ask "$port" /data "$host" | grep -q '^HTTP/1.1 200' || fail "the name $host is not answered"
done
ask "$port" / localhost POST | grep -q '^HTTP/1.1 405' || fail "POST"
ask "$port" /etc/passwd | grep -q '^HTTP/1.1 404' || fail "another path"
expect 5 "cannot listen at 127.0.0.1 port $port" "${run[@]}" --output_dir other --dashboard true --dashboard_port "$port"
grep -q -- '--dashboard_port N' err || fail "no hint about dashboard_port:" "$(cat err)"
kill -9 $training
wait $training 2>/dev/null

# Folders: killed, ended, failed, from elsewhere, torn, hostile.
"$trimtab" "${run[@]}" --output_dir ended --max_steps 4 --logging_steps 1 >said 2>&1 || fail "a training: $(cat said)"
grep -q '"state": "ended"' ended/run.json || fail "run.json of a run that ended:" "$(cat ended/run.json)"
expect 3 "has had no gradient" "${run[@]}" --output_dir failed --max_steps 4 --learning_rate 1e30
grep -q '"state": "failed"' failed/run.json && grep -q '"error": "error: .*has had no gradient' failed/run.json ||
    fail "run.json of a run that failed:" "$(cat failed/run.json)"
mkdir -p far && cp ended/metrics.jsonl far/ && head -c 300 ended/metrics.jsonl | tail -c 120 | tr -d '\n' >>far/metrics.jsonl
bad='</script><script>document.title=1</script><img src=x onerror=alert(1)>'
mkdir -p "hostile & <b>"
cat >"hostile & <b>/metrics.jsonl" <<END
{"step": 1, "loss": 2.5, "$bad": 1, "step_seconds": 1.0}
{"event": "save", "step": 1, "folder": "$bad", "bytes": 7, "seconds": 0.5}
END
echo "{\"step\": 1, \"prompt\": \"$bad\", \"completion\": \"$bad\"}" >"hostile & <b>/generations.jsonl"
echo "{\"name\": \"$bad\", \"state\": \"failed\", \"error\": \"error: $bad\", \"config\": \"# $bad\\nname: $bad  # $bad\", \"model\": \"$bad\"}" \
    >"hostile & <b>/run.json"
mkdir -p ended/pictures && printf 'a picture' >ended/pictures/4-7.jpg
echo '{"step": 4, "id": 7, "image": "shape", "file": "4-7.jpg", "width": 8, "height": 8, "boxes": 1, "detections": 2}' >ended/pictures.jsonl
serve alive ended far empty "hostile & <b>"
[ "$(ask "$port" /picture/1/4-7.jpg | tail -n 1)" = 'a picture' ] || fail "no picture"
ask "$port" /picture/1/4-7.jpg | grep -q '^Content-Type: image/jpeg' || fail "a picture of another type"
for path in 0/4-7.jpg 9/4-7.jpg 99999999999999999999/4-7.jpg 1/../run.json 1/..%2frun.json x/4-7.jpg 1; do
    ask "$port" "/picture/$path" | grep -q '^HTTP/1.1 404' || fail "a picture at $path"
done
ask "$port" /data | body >data
[ "$(grep -o '"folder":' data | wc -l)" -ge 5 ] || fail "not five runs"
grep -q '"pictures":\[{"step": 4' data || fail "the data have no pictures"
grep -q '<' data && fail "the data have markup"
grep -q '"broken":1' data || fail "the torn row of a folder is not counted"
version=$(sed -nE 's/^\{"version":([0-9]+),.*/\1/p' data)
ask "$port" "/data/$version" | grep -q '^HTTP/1.1 204' || fail "the same data again"
echo '{"step": 2, "loss": 2.25}' >>"hostile & <b>/metrics.jsonl"
sleep 1.1
ask "$port" "/data/$version" | body | grep -q '2\.25' || fail "a new row does not appear"
stop
expect 3 "has no metrics.jsonl" dashboard nowhere
expect 2 "dashboard needs the folders" dashboard
expect 2 "is no address to listen at" dashboard ended --host nowhere.example

# 100,000 rows: one page, less than 200 kB with its data, drawn within a second.
mkdir long
awk 'BEGIN { for (i = 1; i <= 100000; i++) printf "{\"step\": %d, \"loss\": %g, \"grad_norm\": %g, \"learning_rate\": %g, " \
    "\"tokens_per_second\": %g, \"step_seconds\": 1.0, \"forward_seconds\": 0.7, \"backward_seconds\": 0.2}\n", i,
    2 + i % 13 / i, 1 + i % 7 / 9, 1 / i, 4000 + i % 100 }' >long/metrics.jsonl
"$trimtab" plot long --output long.html >/dev/null || fail "a page of 100,000 rows"
[ "$(wc -c <long.html)" -lt 200000 ] || fail "$(wc -c <long.html) bytes"
"$trimtab" plot alive ended far empty "hostile & <b>" --output hostile.html >/dev/null || fail "a page of folders"

command -v chromium >/dev/null || { echo "without a browser: chromium is not installed"; finish; }
# browse URL: the page after its scripts
browse() {
    timeout 100 chromium --headless=new --no-sandbox --disable-gpu --user-data-dir="$folder/browser" --dump-dom "$@" 2>/dev/null
}
# The best of some tries, and more time where more runs than there are processors.
limit=1000
[ "$(awk '{ print int($1) }' /proc/loadavg)" -le $((2 * $(nproc))) ] || limit=5000
best=9999
for _ in 1 2 3; do
    browse "file://$folder/long.html" >dom
    painted=$(sed -nE 's/.*data-painted="([0-9]+)".*/\1/p' dom | head -1)
    [ "${painted:-9999}" -lt "$best" ] && best=$painted
    [ "$best" -lt $limit ] && break
done
[ "$best" -lt $limit ] || fail "100,000 rows are drawn after $best ms, not $limit"
browse "file://$folder/hostile.html" >dom
grep -q 'data-painted' dom || fail "hostile texts end the page"
[ "$(grep -o '<script' dom | wc -l)" = 2 ] && ! grep -q '<img' dom && grep -q '<title>5 runs' dom || fail "a text became markup"
grep -q '&lt;/script&gt;&lt;script&gt;' dom || fail "a text is not shown"
serve ended
for _ in 1 2 3; do
    browse --virtual-time-budget=5000 "http://127.0.0.1:$port/" >dom
    grep -q 'data-chart' dom && break
done
for part in 'data-chart="loss"' '<path d="M' 'Time of a step' 'Memory of a rank' '>ended<' 'Settings of ended' \
    'src="picture/0/4-7.jpg"' 'step 4: shape, 1 annotated, 2 found'; do
    grep -q "$part" dom || fail "the page in a browser has no $part"
done
stop
# Nothing is wider than a phone: the frame's page tells its widths.
cat >phone.html <<'END'
<body><iframe id=f src="hostile.html" width=390 height=800></iframe><script>
f.onload = () => { const d = f.contentDocument.documentElement; document.body.dataset.wide = d.scrollWidth; };</script>
END
browse --allow-file-access-from-files --virtual-time-budget=3000 "file://$folder/phone.html" >dom
wide=$(sed -nE 's/.*data-wide="([0-9]+)".*/\1/p' dom)
[ "${wide:-9999}" -le 390 ] || fail "on a phone of 390 pixels the page is ${wide:-?} wide"

# 25 runs, on a phone and a desk: a page asks the page within it and writes what is wrong.
for i in $(seq 25); do
    mkdir "many-$i"
    awk -v i="$i" 'BEGIN { for (s = 1; s <= 20 + 2 * i; s++) printf "{\"step\": %d, \"loss\": %g, \"learning_rate\": %g}\n", s,
        9 - i / 5 - s / 100, 1 / (s + i) }' >"many-$i/metrics.jsonl"
    echo '{"step": 20, "eval_loss": 7.5}' >>"many-$i/metrics.jsonl"
    echo "{\"name\": \"one run of a sweep with a long name $((i % 24))\", \"state\": \"ended\"}" >"many-$i/run.json"
done
"$trimtab" plot many-{1..25} --output many.html >/dev/null || fail "a page of 25 runs"
cat >ask.html <<'END'
<body><iframe id=f src="many.html" height=900></iframe><script>
f.width = location.hash.slice(1);
f.onload = () => {
  const d = f.contentDocument, wrong = [], all = selector => [...d.querySelectorAll(selector)];
  const check = (right, text) => { if (!right) wrong.push(text); };
  const runs = () => all("[data-table=runs] tbody button.run"), paths = key => all(`[data-chart=${key}] path.curve`).length;
  const row = i => runs()[i].closest("tr").textContent;
  check(d.documentElement.scrollWidth <= Number(f.width), "the page is too wide");
  check(all("[data-chart] h2").every(e => e.getBoundingClientRect().height < 30), "a title is broken");
  check(new Set(all("[data-table=runs] .dot").map(e => getComputedStyle(e).backgroundColor)).size === 25, "colours repeat");
  check(new Set(runs().map(e => e.textContent)).size === 25, "names repeat");
  const texts = all("[data-chart=loss] svg text");
  check(texts.length > 3 && texts.every(e => Math.abs(e.getBoundingClientRect().height - 15) < 4), "text grows or shrinks");
  const ticks = key => all(`[data-chart=${key}] svg text[text-anchor=middle]`).map(e => e.textContent + "@" + e.getAttribute("x")).join();
  check(ticks("eval_loss") === ticks("loss") && ticks("loss") !== "", `ranges differ: ${ticks("eval_loss")} and ${ticks("loss")}`);
  const box = all("[data-table=runs]")[0].closest(".tall");
  check(box.scrollHeight > box.clientHeight, "the table of runs is not cut");
  check(Number(f.width) > 390 || box.scrollWidth > box.clientWidth, "the table of runs does not scroll");
  const svg = all("[data-chart=loss] svg")[0], place = svg.getBoundingClientRect(), tip = all("[data-chart=loss] .tip")[0];
  svg.dispatchEvent(new f.contentWindow.PointerEvent("pointermove", { clientX: place.right - 10, clientY: place.bottom - 24 }));
  check(/^step 70/.test(tip.textContent) && /name 1 \(many-25\)3\.3/.test(tip.textContent), "no step, name or value: " + tip.textContent);
  check(tip.querySelectorAll(".dot").length <= 8 && tip.querySelector(".nearest") !== null, "the nearest is not told");
  check(paths("loss") === 25, paths("loss") + " curves");
  runs()[0].click();
  check(paths("loss") === 24 && all("[data-chart=learning_rate] path.curve").length === 24, "a click hides nothing");
  const sort = () => all("[data-table=runs] thead button")[3].click();
  sort();
  check(row(0).includes("many-25") && row(24).includes("many-1)"), "not sorted: " + row(0) + " to " + row(24));
  sort();
  check(row(0).includes("many-1)") && runs()[0].getAttribute("aria-pressed") === "false", "not sorted downwards: " + row(0));
  runs()[3].dispatchEvent(new f.contentWindow.MouseEvent("click", { shiftKey: true, bubbles: true }));
  check(paths("loss") === 1 && all("[data-chart=loss] .value")[0].textContent !== "", "Shift does not choose one");
  document.body.dataset.wrong = wrong.join("; ") || "nothing";
};</script>
END
for size in 1280 390; do
    browse --allow-file-access-from-files --window-size=1400,1000 --virtual-time-budget=3000 "file://$folder/ask.html#$size" >dom
    grep -q 'data-wrong="nothing"' dom || fail "25 runs at $size pixels:" "$(grep -o 'data-wrong="[^"]*"' dom)"
done
finish
