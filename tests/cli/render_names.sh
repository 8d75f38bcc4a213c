#!/bin/bash
# Names in rendered objects: of runs, at the limits of the kinds; of variables, reserved and secret ones are refused; and
# words that YAML would read as something else are quoted, as keys and as values.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
printf 'model_name_or_path: /models/m\ndataset_name: /data/train.jsonl\noutput_dir: /run/trimtab/out\n' >sft.yaml
base=(--config sft.yaml --config_json "$root/bench/shapes/tiny.json" --image reg/x:1 --chip h200 --gpus_per_node 4
    --volumes "models:/models:ro,data:/data:ro")

# limit KIND NODES MOST SUFFIX: a name of MOST characters is rendered, one more is refused with what the last pod adds
limit() {
    local kind=$1 nodes=$2 most=$3 suffix=$4 name
    printf -v name '%*s' "$most" ''
    name=${name// /a}
    expect 0 "name: $name" render "$kind" "${base[@]}" --nodes "$nodes" --name "$name"
    expect 2 "has $((most + 1)) characters, and the last pod adds '$suffix'" render "$kind" "${base[@]}" --nodes "$nodes" --name "a$name"
    expect 2 "a name of at most $most" render "$kind" "${base[@]}" --nodes "$nodes" --name "a$name"
}
for kind in jobset trainjob; do
    limit $kind 1 48 -node-0-0-abcde
    limit $kind 2 48 -node-0-1-abcde
    limit $kind 12 47 -node-0-11-abcde
    limit $kind 101 46 -node-0-100-abcde
done
limit job 2 61 -1
limit job 12 60 -11
limit volcano 2 56 -node-1
limit pytorchjob 2 54 -worker-1
limit mpijob 2 54 -worker-1

# Every name that the pods or a controller set, with what follows the beginnings of families of names.
for name in RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK MASTER_ADDR MASTER_PORT RUN_UID RUN_ATTEMPT NODE_NAME \
    VK_TASK_INDEX PET_NNODES TRIMTAB_JOB_SECRET_FILE TRIMTAB_X OMPI_COMM_WORLD_SIZE PMIX_RANK PMI_SIZE LWS_LEADER_ADDRESS \
    VC_TASK_INDEX JOB_COMPLETION_INDEX; do
    expect 2 "the pods, or the controller that makes them, set this variable" render job "${base[@]}" --nodes 2 \
        --pod_env "{\"$name\": \"1\"}"
    grep -qF "pod_env '$name'" err || fail "$name is not named: $(cat err)"
done
for name in HF_TOKEN TOKEN WANDB_API_KEY API_KEY MY_SECRET SECRET_X DB_PASSWORD DB_PASSWD AWS_ACCESS_KEY_ID SSE_CUSTOMER_KEY \
    SSH_PRIVATE_KEY; do
    expect 2 "mount a Secret instead" render job "${base[@]}" --nodes 2 --pod_env "{\"$name\": \"1\"}"
    grep -qF "pod_env '$name'" err || fail "$name is not named: $(cat err)"
done
# Names that only resemble them are the user's.
for name in RANKS MY_RANK NCCL_DEBUG WORLD PETS JOB_NAME APIKEY AWS_WEB_IDENTITY_TOKEN_FILE HF_TOKEN_PATH; do
    expect 0 "{name: $name, value: \"1\"}" render job "${base[@]}" --nodes 2 --pod_env "{\"$name\": \"1\"}"
done

# A password in an address is one, too.
expect 2 "pod_env 'HTTPS_PROXY'" render job "${base[@]}" --nodes 2 --pod_env '{"HTTPS_PROXY": "http://user:secretPASS@proxy.net:3128"}'
grep -q secretPASS err && fail "the password is shown: $(cat err)"
for value in http://user@proxy.net:3128 http://proxy.net:3128/a:b@c a:b@c; do
    expect 0 "value: \"$value\"" render job "${base[@]}" --nodes 2 --pod_env "{\"HTTPS_PROXY\": \"$value\"}"
done

# Words that YAML 1.1 or 1.2 reads as a number, a date, a truth or null.
for word in 0x10 010 0o17 0b11 12 1_000 1.5 1e3 2026-01-01 true Yes NO on off y N null 190.20.30; do
    expect 0 "  \"$word\": \"v\"" render job "${base[@]}" --nodes 2 --node_selector "{\"$word\": \"v\"}"
done
expect 0 "  pool: \"v\"" render job "${base[@]}" --nodes 2 --node_selector '{"pool": "v"}'
expect 0 "  nvidia.com/gpu.product: \"v\"" render job "${base[@]}" --nodes 2 --node_selector '{"nvidia.com/gpu.product": "v"}'
for word in NO y null TRUE; do
    expect 0 "{name: \"$word\", value: \"1\"}" render job "${base[@]}" --nodes 2 --pod_env "{\"$word\": \"1\"}"
    expect 0 "-x, \"$word\", " render mpijob "${base[@]}" --nodes 2 --pod_env "{\"$word\": \"1\"}"
done
for word in no y on true; do
    for kind in jobset job trainjob pytorchjob mpijob volcano; do
        monitored=(--monitoring_namespace off)
        [ $kind = mpijob ] && monitored=()
        expect 0 "trimtab/run: \"$word\"" render $kind "${base[@]}" --nodes 2 --name $word "${monitored[@]}"
        grep -E "(^|[ {])(name|trimtab/run|subdomain|podGroupName|kubernetes.io/metadata.name): ($word|off)(\$|[},])" printed &&
            fail "$kind: $word or off stands unquoted"
    done
done
expect 0 'name: "on"}' render trainjob "${base[@]}" --nodes 2 --runtime on
finish
