# Sourced after command_line.sh by tests that need a hub: starts one on loopback over $folder/hub_root, with
# HF_ENDPOINT and an empty cache. Defines requests, which counts lines of its log, and faults.
command -v python3 >/dev/null || { echo "skipped: there is no python3"; exit 77; }
unset HF_HUB_OFFLINE TRANSFORMERS_OFFLINE HF_TOKEN HUGGING_FACE_HUB_TOKEN HF_TOKEN_PATH HF_HUB_CACHE HUGGINGFACE_HUB_CACHE \
    HF_HUB_DISABLE_IMPLICIT_TOKEN XDG_CACHE_HOME
unset http_proxy HTTPS_PROXY https_proxy ALL_PROXY all_proxy
export HF_HOME=$folder/hf HOME=$folder
mkdir -p hub_root/models hub_root/datasets
python3 "$root/tests/tools/fake_hub.py" hub_root >hub_output 2>&1 &
hub_server=$!
trap 'kill $hub_server 2>/dev/null; rm -rf "$folder"' EXIT
for _ in $(seq 1000); do [ -e hub_root/port ] && break; sleep 0.1; done
[ -e hub_root/port ] || { echo "FAILED: the hub does not start: $(cat hub_output)"; exit 1; }
export HF_ENDPOINT=http://127.0.0.1:$(cat hub_root/port)
# requests TEXT: how many requests have it in their lines.
requests() { grep -cF -- "$1" hub_root/log; }
# faults LINE...: those of tests/tools/fake_hub.py; each line works once over the life of the server.
faults() { printf '%s\n' "$@" >hub_root/faults; }
