#!/usr/bin/env bash
# A hub over TLS: its certificate is verified, by the authorities of SSL_CERT_FILE or CURL_CA_BUNDLE and for its name; a
# proxy, and hosts that are reached without it.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
command -v openssl >/dev/null || { echo "skipped: there is no openssl"; exit 77; }
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost \
    -addext "subjectAltName=DNS:localhost" -keyout key.pem -out certificate.pem 2>log || { cat log; exit 1; }
cat key.pem certificate.pem >both.pem
mkdir -p secure/models/some/thing && echo '{"a": 1}' >secure/models/some/thing/config.json
source "$root/tests/tools/hub_server.sh"
"$trimtab" download nobody/none 2>err
grep -q "needs libcurl" err && { echo "skipped: there is no libcurl"; exit 77; }
python3 "$root/tests/tools/fake_hub.py" secure both.pem >secure_output 2>&1 &
secure_server=$!
trap 'kill $hub_server $secure_server 2>/dev/null; rm -rf "$folder"' EXIT
for _ in $(seq 1000); do [ -e secure/port ] && break; sleep 0.1; done
plain=$HF_ENDPOINT
port=$(cat secure/port)
export HF_ENDPOINT=https://localhost:$port
unset SSL_CERT_FILE CURL_CA_BUNDLE SSL_CERT_DIR NO_PROXY no_proxy
expect 3 "certificates are always verified" download some/thing
SSL_CERT_FILE=$folder/certificate.pem expect 0 "snapshots" download some/thing
CURL_CA_BUNDLE=$folder/certificate.pem expect 0 "snapshots" download some/thing
SSL_CERT_FILE=$folder/certificate.pem HF_ENDPOINT=https://127.0.0.1:$port expect 3 "certificates are always verified" download some/thing
SSL_CERT_FILE=$folder/none.pem expect 3 "names a file of PEM certificates" download some/thing
# A proxy is asked for the host that it alone knows; NO_PROXY goes around it.
mkdir -p hub_root/models/some/other && echo '{"a": 2}' >hub_root/models/some/other/config.json
http_proxy=$plain HF_ENDPOINT=http://hub.invalid expect 0 "snapshots" download some/other
grep -q "http://hub.invalid/api/models/some/other" hub_root/log || fail "the proxy was not asked: $(cat hub_root/log)"
http_proxy=http://127.0.0.1:9 HF_ENDPOINT=$plain NO_PROXY=127.0.0.1 expect 0 "snapshots" download some/other
finish
