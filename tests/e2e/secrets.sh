#!/bin/bash
# One run with every secret that there can be: a token of the hub in the environment, in a file and as a word; keys of AWS with
# their session's token; passwords of proxies, keys of trackers, the secret of a job, tokens of pods. No log, record, object,
# cache, list of processes, rendered object or help has one of them, nor a word of it.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
source "$root/tests/tools/s3.sh"
source "$root/tests/tools/hub_server.sh"
mkdir guard with seen hub_root/models/some hub_root/datasets/some && mv base hub_root/models/some/base
mkdir -p hub_root/datasets/some/rows && cp rows/train.jsonl hub_root/datasets/some/rows/
touch hub_root/models/some/base/.gated
PROXY_USER=user:passwordOfProxy python3 "$root/tests/tools/proxy.py" guard >proxy_output 2>&1 &
proxy=$!
trap 'kill $server $hub_server $proxy $watcher 2>/dev/null; rm -rf "$folder"' EXIT
wait_for 100 test -e guard/port
tracked=()
if python3 -m venv --without-pip with 2>/dev/null; then
    site=$(echo with/lib/python3*/site-packages)
    cp "$root/tests/tools/fake_tracker.py" "$site/"
    mkdir "$site/wandb" calls && printf 'import fake_tracker\nfake_tracker.install(__name__)\n' >"$site/wandb/__init__.py"
    tracked=(--report_to wandb)
fi
# Keys that end, with a token of their session, as a user has them from a console.
python3 - "$s3" <<'END' >session
import json, sys, urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
keys = json.load(opener.open(urllib.request.Request(sys.argv[1] + "/-/container", headers={"Authorization": "token of the pod"})))
print(keys["AccessKeyId"], keys["SecretAccessKey"], keys["Token"])
END
read -r AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN <session
rm session
export AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN
export HF_TOKEN=hf_good WANDB_API_KEY=keyOfTheTracker TRIMTAB_PYTHON=$folder/with/bin/python RECORD=$folder/calls
export TRIMTAB_JOB_SECRET=secretOfTheJobAndItsProcesses MLFLOW_TRACKING_PASSWORD=passwordOfMlflow
secrets=(hf_good "$AWS_SECRET_ACCESS_KEY" "$AWS_SESSION_TOKEN" passwordOfProxy "$(printf user:passwordOfProxy | base64)" keyOfTheTracker
    secretOfTheJobAndItsProcesses passwordOfMlflow "token of the pod" identity+of Signature= "Bearer ")
# The words of this test's processes, five times a second, of those that are there for a second: what a flag says is hidden when
# it is read.
PYTHONPATH=$root/tests/tools python3 - "$folder" >>seen/processes 2>watched <<'END' &
import collections, os, sys, time
from with_parent import end_with_parent
end_with_parent()
times = collections.Counter()
while True:
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{process}/cwd") == sys.argv[1]:
                times[process] += 1
                if times[process] >= 5:
                    print(open(f"/proc/{process}/cmdline").read().replace("\0", " "), flush=True)
        except OSError:
            pass
    time.sleep(0.2)
END
watcher=$!

http_proxy=http://user:passwordOfProxy@127.0.0.1:$(cat guard/port)
export http_proxy NO_PROXY=127.0.0.2
store=(--model_name_or_path some/base --dataset_name some/rows --device cpu --threads 1 --per_device_train_batch_size 1 --max_steps 4
    --save_steps 2 --logging_steps 1)
keep() { cat printed err >>seen/printed; }
expect 0 "pushed the result" train "${store[@]}" --output_dir s3://bucket/run --push_to_hub true \
    --hub_model_id me/run --hub_strategy all_checkpoints --hub_token hf_good --dashboard true --metrics_port 0 --profile true
keep
[ "$(grep -c . guard/log)" -gt 20 ] || fail "the proxy was hardly asked: $(cat guard/log)"
# Long enough to be seen on the list of processes; on a busy machine not at the first time.
for _ in 1 2 3 4; do
    expect 0 "done: 6000 steps" train "${store[@]}" "${tracked[@]}" --output_dir disk --overwrite_output_dir true --max_steps 6000 \
        --save_steps 3000 --logging_steps 100 --push_to_hub true --hub_model_id me/disk --hub_token hf_good
    keep
    grep -q "trimtab train .*--hub_token" seen/processes || continue
    [ ${#tracked[@]} -eq 0 ] || grep -q "with/bin/python" seen/processes || continue
    break
done
printf 'hub_token: hf_good\npush_to_hub: true\nhub_model_id: me/other\n' >file.yaml
expect 0 "pushed the result" train "${store[@]}" --config file.yaml --output_dir from_file
keep
rm file.yaml
for words in "train ${store[*]} --output_dir x --push_to_hub true --hub_token hf_good --print_config" "inspect some/base" \
    "inspect disk" "inspect s3://bucket/run/checkpoint-4" "plan ${store[*]:0:2} --device cpu" "doctor --json" "version" "help" "help train" "help --markdown" \
    "upload me/files rows" "download some/base --include *.json" "generate --model some/base --prompt 1 --max_new_tokens 1 --device cpu"; do
    # shellcheck disable=SC2086
    "$trimtab" $words >printed 2>err </dev/null || fail "$words: $(cat err)"
    keep
done
# Errors, each with what it may not say.
HF_TOKEN=hf_old expect 3 "may have expired" download some/base --revision v9
keep
AWS_SESSION_TOKEN=wrongSessionToken expect 3 "InvalidToken" train "${store[@]}" --output_dir s3://bucket/none
keep
secrets+=(hf_old wrongSessionToken)
expect 2 "takes one value" train "${store[@]}" --output_dir x --push_to_hub true --hub_token hf_good more
keep
for kind in jobset job trainjob pytorchjob mpijob volcano sbatch runtime; do
    image=(--image trimtab:1)
    [ $kind != sbatch ] || image=()
    "$trimtab" render $kind --name run --nodes 2 --cpus_per_node 1 "${image[@]}" --config_json hub_root/models/some/base/config.json "${store[@]}" \
        --output_dir s3://bucket/run --push_to_hub true --hub_token hf_good --pod_secrets HF_TOKEN=hub/token,HTTPS_PROXY=proxy/url \
        --pod_env "{\"AWS_ENDPOINT_URL\": \"$s3\"}" >seen/$kind.yaml 2>err
    code=$?
    [ $code -eq 0 ] || [ $kind = runtime ] || [ $kind = sbatch ] || fail "render $kind: $(cat err)"
    cat err >>seen/printed
done
unset http_proxy

kill $watcher
mkdir seen/objects && control dump "folder=$folder/seen/objects"
cp -r hub_root/models/me disk from_file "$HF_HOME/hub" server/log seen/
[ ! -d calls ] || cp -r calls seen/
[ "$(find seen -type f | wc -l)" -gt 60 ] || fail "little was seen: $(find seen)"
grep -q "trimtab train .*--hub_token" seen/processes || fail "the list of processes has no run: $(grep -c . seen/processes)"
[ ${#tracked[@]} -eq 0 ] || grep -q "with/bin/python" seen/processes || fail "the list of processes has no tracker: $(sort -u seen/processes)"
for secret in "${secrets[@]}"; do grep -rlaF -- "$secret" seen tmp && fail "'$secret' is in what was written"; done
# Each of them would be found.
printf '%s\n' "${secrets[@]}" >seen/all
for secret in "${secrets[@]}"; do grep -qrlaF -- "$secret" seen || fail "'$secret' cannot be found"; done
finish
