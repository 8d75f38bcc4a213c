# Sourced after command_line.sh: starts the S3 server of the tests on loopback ($s3, its address), with its data in
# memory; sets AWS' variables for it and makes the model base and the rows rows/train.jsonl, here and in the bucket.
command -v python3 >/dev/null || { echo "skipped: there is no python3"; exit 77; }
python3 -c 'import ctypes; ctypes.CDLL("libcurl.so.4")' 2>/dev/null ||
    python3 -c 'import ctypes; ctypes.CDLL("libcurl-gnutls.so.4")' 2>/dev/null ||
    { echo "skipped: there is no libcurl"; exit 77; }
mkdir server tmp
python3 "$root/tests/tools/s3_server.py" "$folder/server" >server/out 2>&1 &
server=$!
trap 'kill $server 2>/dev/null; rm -rf "$folder"' EXIT
wait_for() { # wait_for SECONDS COMMAND...
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        [ $SECONDS -lt $end ] || { fail "waited in vain: $*"; return 1; }
        sleep 0.02
    done
}
wait_for 100 test -e server/port
s3=http://127.0.0.1:$(cat server/port)
for name in $(compgen -e AWS_); do unset "$name"; done
unset http_proxy HTTPS_PROXY ALL_PROXY
export AWS_ENDPOINT_URL=$s3 AWS_ACCESS_KEY_ID=AKIDTEST AWS_SECRET_ACCESS_KEY=secretTESTkey TMPDIR=$folder/tmp HOME=$folder
# control NAME [QUERY]: a control of the server; in QUERY a blank is "+".
control() {
    local tcp
    exec {tcp}<>"/dev/tcp/127.0.0.1/${s3##*:}"
    printf 'GET /-/%s?%s HTTP/1.0\r\n\r\n' "$1" "${2-}" >&$tcp
    sed '1,/^\r$/d' <&$tcp
    exec {tcp}>&-
}
cp -r "$root/tests/golden/qwen2/model" base && cp "$root"/tests/support/tiny_tokenizer/* base/
mkdir rows && for i in 1 2 3 4 5 6 7 8; do printf '{"prompt": "%d +", "completion": " %d"}\n' $i $i; done >rows/train.jsonl
control load "folder=$folder"
train=(train --threads 1 --device cpu --per_device_train_batch_size 1 --learning_rate 1e-3 --save_steps 2)
stored() { control get "path=/bucket/$1"; }
# same OBJECT FILE: they have the same bytes.
same() { stored "$1" | cmp -s - "$2" || fail "bucket/$1 and $2 differ"; }
