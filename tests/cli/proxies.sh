#!/usr/bin/env bash
# Proxies: tunnels to hosts of https, whole URLs of http, names that go around, and passwords that nothing shows; for the hub
# and for s3:// paths.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
command -v openssl >/dev/null || { echo "skipped: there is no openssl"; exit 77; }
source "$root/tests/tools/s3.sh"
source "$root/tests/tools/hub_server.sh"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=hub.invalid \
    -addext "subjectAltName=DNS:hub.invalid,DNS:localhost" -keyout key.pem -out certificate.pem 2>log || { cat log; exit 1; }
cat key.pem certificate.pem >both.pem
mkdir -p secure/models/some/thing open closed && echo '{"a": 1}' >secure/models/some/thing/config.json
python3 "$root/tests/tools/fake_hub.py" secure both.pem >secure_output 2>&1 &
servers=($!)
python3 "$root/tests/tools/proxy.py" open >open_output 2>&1 &
servers+=($!)
PROXY_USER=user:secretPASS python3 "$root/tests/tools/proxy.py" closed >closed_output 2>&1 &
servers+=($!)
trap 'kill $server $hub_server ${servers[@]} 2>/dev/null; rm -rf "$folder"' EXIT
for name in secure open closed; do wait_for 100 test -e $name/port; done
unset SSL_CERT_FILE CURL_CA_BUNDLE SSL_CERT_DIR NO_PROXY no_proxy http_proxy https_proxy
export SSL_CERT_FILE=$folder/certificate.pem
plain=$HF_ENDPOINT proxy=http://127.0.0.1:$(cat open/port) guarded=127.0.0.1:$(cat closed/port) port=$(cat secure/port)
fresh() { rm -rf "$HF_HOME/hub"; : >open/log; : >closed/log; }

# A tunnel: the proxy sees no more than the host, whose certificate is verified through it.
fresh
HTTPS_PROXY=$proxy HF_ENDPOINT=https://hub.invalid:$port HF_TOKEN=hf_good expect 0 "snapshots" download some/thing
grep -qx "CONNECT hub.invalid:$port 200" open/log || fail "no tunnel: $(cat open/log)"
grep -v "^CONNECT hub.invalid:$port 200$" open/log && fail "the proxy saw more than the host"
fresh
HTTPS_PROXY=$proxy HF_ENDPOINT=https://other.invalid:$port expect 3 "certificates are always verified" download some/thing
SSL_CERT_FILE='' HTTPS_PROXY=$proxy HF_ENDPOINT=https://hub.invalid:$port expect 3 "certificates are always verified" download some/thing
# Names and domains that go around it; what is not listed does not.
for around in localhost "other.net,localhost" "*"; do
    fresh
    HTTPS_PROXY=http://127.0.0.1:9 NO_PROXY=$around HF_ENDPOINT=https://localhost:$port expect 0 "snapshots" download some/thing
done
fresh
HTTPS_PROXY=$proxy NO_PROXY=.net,hub.example HF_ENDPOINT=https://hub.invalid:$port expect 0 "snapshots" download some/thing
[ -s open/log ] || fail "a name that NO_PROXY does not list went around the proxy"
# One that wants a password, one that is not there, and addresses that are none: one error, and no password in it.
fresh
HTTPS_PROXY=http://user:secretPASS@$guarded HF_ENDPOINT=https://hub.invalid:$port expect 0 "snapshots" download some/thing
grep -qx "CONNECT hub.invalid:$port 200" closed/log || fail "no tunnel with a password: $(cat closed/log)"
fresh
for address in "http://user:secretWRONG@$guarded" "http://$guarded" "ftp://user:secretPASS@$guarded" \
    "http://user:secretPASS@[bad" "nothing://user:secretPASS@$guarded"; do
    HTTPS_PROXY=$address HF_ENDPOINT=https://hub.invalid:$port expect 2 "HTTPS_PROXY, or http_proxy, is" download some/thing
    cat printed err >>seen
done
grep -q 407 seen || fail "nothing tells of the password that is missing: $(cat seen)"
grep -q "trying again" seen && fail "what no retry cures was tried again: $(cat seen)"
http_proxy=http://user:secretWRONG@$guarded HF_ENDPOINT=$plain expect 3 "HTTPS_PROXY, or http_proxy, is" download some/thing
cat printed err >>seen
HTTPS_PROXY=http://user:secretPASS@127.0.0.1:9 HF_ENDPOINT=https://hub.invalid:$port expect 5 "behind a proxy" download some/thing
cat printed err >>seen
HF_ENDPOINT=https://user:secretPASS@hub.invalid expect 2 "no address of a hub" download some/thing
cat printed err >>seen
# An object store: of http by whole URLs, whose signature holds.
fresh
http_proxy=http://user:secretPASS@$guarded AWS_ENDPOINT_URL=http://store.invalid:${s3##*:} expect 0 "done: 2 steps" "${train[@]}" \
    --max_steps 2 --model_name_or_path s3://bucket/base --dataset_name s3://bucket/rows/train.jsonl --output_dir s3://bucket/run
cat printed err >>seen
grep -q "^PUT http://store.invalid:${s3##*:}/bucket/run/adapter_model.safetensors 200" closed/log || fail "the store was not asked through the proxy: $(cat closed/log)"
mkdir dumped && control dump "folder=$folder/dumped"
[ "$(find dumped -type f | wc -l)" -gt 10 ] || fail "little is in the bucket"
AWS_ENDPOINT_URL=http://user:secretPASS@127.0.0.1:9 expect 2 "no address of http" "${train[@]}" --max_steps 2 \
    --model_name_or_path s3://bucket/base --dataset_name s3://bucket/rows/train.jsonl --output_dir s3://bucket/run
cat printed err >>seen
http_proxy=http://127.0.0.1:9 NO_PROXY=127.0.0.1 expect 0 "model folder" inspect s3://bucket/base
for secret in secretPASS secretWRONG dXNlcj secretTESTkey; do grep -rlaF $secret seen dumped && fail "'$secret' is shown"; done
finish
