#!/usr/bin/env bash
# Ctrl-C and SIGTERM during trimtab download and upload: an end within seconds, nothing half-written under a name, no commit,
# and the next call goes on where this one stopped.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
source "$root/tests/tools/hub_server.sh"
"$trimtab" download nobody/none 2>err
grep -q "needs libcurl" err && { echo "skipped: there is no libcurl"; exit 77; }
export HF_TOKEN=hf_good
there=hub_root/models/some/thing cache=$HF_HOME/hub
mkdir -p $there && head -c 3000000 /dev/urandom >$there/large.bin && echo '{"a": 1}' >$there/config.json
sum=$(sha256sum <$there/large.bin | cut -d' ' -f1)
blob=$cache/models--some--thing/blobs/$sum
times=0
# stopped SIGNAL FAULT TEXT COMMAND...: the command gets the signal when the hub has had TEXT, which it answers with the fault.
stopped() {
    local signal=$1 text=$3 code=0 begun before
    before=$(requests "$text")
    faults "$2 $((++times)) $text" # a line of its own each time
    shift 3
    # Background processes of a script ignore SIGINT unless job control is on.
    set -m
    "$trimtab" "$@" >printed 2>err </dev/null &
    local process=$!
    set +m
    for _ in $(seq 600); do [ "$(requests "$text")" -gt "$before" ] && break; sleep 0.1; done
    until_there
    begun=$SECONDS
    kill -"$signal" $process
    wait $process || code=$?
    [ $code -eq 11 ] || fail "$signal during $1: exit $code: $(cat printed err)"
    [ $((SECONDS - begun)) -le 5 ] || fail "$signal during $1 took $((SECONDS - begun)) s"
    : >hub_root/faults
    [ "$(grep -c '^error:' err)" -eq 1 ] && grep -q "stopped on request" err && grep -q "^ending the $1, which" err || fail "$signal during $1 says: $(cat err)"
}

until_there() { for _ in $(seq 600); do [ -s "$blob.incomplete" ] && break; sleep 0.1; done; }
for signal in INT TERM; do
    rm -rf "$cache"
    stopped $signal hang "/cdn/$sum" download some/thing
    [ ! -e "$blob" ] && [ ! -e $cache/models--some--thing/refs ] && [ ! -e $cache/models--some--thing/snapshots ] ||
        fail "a part has a name: $(find "$cache")"
    HF_HUB_OFFLINE=1 expect 3 "trimtab download some/thing" inspect some/thing
    expect 0 "snapshots" download some/thing
    cmp $there/large.bin "$(cat printed)/large.bin" || fail "the file differs after $signal"
    [ "$(grep -c "/cdn/$sum.*range=bytes=[1-9]" hub_root/log)" -ge 1 ] || fail "it began anew after $signal"
    : >hub_root/log
done

until_there() { :; }
mkdir out && head -c 500000 /dev/urandom >out/large.safetensors && head -c 3000 /dev/urandom >out/small.safetensors && echo '# A model' >out/README.md
part=$(sha256sum <out/large.safetensors | cut -d' ' -f1).2
for place in "/put/$part" /api/models/me/new/preupload /api/models/me/new/commit .git/info/lfs/objects/batch; do
    for signal in INT TERM; do
        stopped $signal silent "$place" upload me/new out
        [ -z "$(find hub_root/models/me/new -type f)" ] || fail "a part of an upload is there: $(find hub_root/models/me/new)"
    done
done
# Killed.
faults "silent 99 /api/models/me/new/commit"
before=$(requests "/api/models/me/new/commit")
"$trimtab" upload me/new out >printed 2>err </dev/null &
killed=$!
for _ in $(seq 600); do [ "$(requests "/api/models/me/new/commit")" -gt "$before" ] && break; sleep 0.1; done
kill -KILL $killed
wait $killed 2>/dev/null
: >hub_root/faults
[ -z "$(find hub_root/models/me/new -type f)" ] || fail "a part of a killed upload is there: $(find hub_root/models/me/new)"
expect 0 "/me/new/commit/" upload me/new out
for file in large.safetensors small.safetensors README.md; do cmp out/$file hub_root/models/me/new/$file || fail "$file differs"; done
finish
