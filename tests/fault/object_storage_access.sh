#!/bin/bash
# Where the server of s3:// paths is, and as whom it is asked: buckets in the path and before the host, profiles, identities
# of pods and of instances, their renewal, and services that do not answer.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
source "$root/tests/tools/s3.sh"
mkdir seen .aws
inspect=(inspect s3://bucket/base)
keep() { cat printed err >>seen/all; }
# asked HOST: all requests for objects since the last call went to this host.
asked() {
    grep -v " /-/" server/log >hosts
    [ -s hosts ] && ! grep -v " $1\$" hosts || fail "not all of these asked $1: $(cat hosts)"
    : >server/log
}

# ---- Addresses ----
port=${s3##*:}
export AWS_ENDPOINT_URL=http://localhost:$port
expect 0 "model folder" "${inspect[@]}"
asked "localhost:$port"
AWS_S3_ADDRESSING_STYLE=virtual expect 0 "model folder" "${inspect[@]}"
asked "bucket.localhost:$port"
AWS_S3_ADDRESSING_STYLE=path expect 0 "model folder" "${inspect[@]}"
asked "localhost:$port"
AWS_S3_ADDRESSING_STYLE=virtual AWS_ENDPOINT_URL=$s3 expect 0 "model folder" "${inspect[@]}" # no names below numbers
asked "127.0.0.1:$port"
AWS_S3_ADDRESSING_STYLE=host expect 2 "is auto, path or virtual" "${inspect[@]}"
AWS_S3_ADDRESSING_STYLE=virtual expect 0 "done: 4 steps" "${train[@]}" --model_name_or_path s3://bucket/base \
    --dataset_name s3://bucket/rows/train.jsonl --max_steps 4 --output_dir s3://bucket/virtual
asked "bucket.localhost:$port"
expect 0 "done: 4 steps" "${train[@]}" --model_name_or_path base --dataset_name rows/train.jsonl --max_steps 4 --output_dir local
same virtual/adapter_model.safetensors local/adapter_model.safetensors
same virtual/checkpoint-2/training_state.safetensors local/checkpoint-2/training_state.safetensors
: >server/log
# A profile has the endpoint and the style; variables come before it.
printf '[profile far]\nendpoint_url = http://localhost:%s/\nregion = eu-north-1\ns3 =\n  addressing_style = virtual\n' "$port" >.aws/config
unset AWS_ENDPOINT_URL
AWS_PROFILE=far expect 0 "model folder" "${inspect[@]}"
asked "bucket.localhost:$port"
AWS_PROFILE=far AWS_S3_ADDRESSING_STYLE=path expect 0 "model folder" "${inspect[@]}"
asked "localhost:$port"
AWS_PROFILE=far AWS_ENDPOINT_URL_S3=$s3 AWS_ENDPOINT_URL=http://127.0.0.1:9 expect 0 "model folder" "${inspect[@]}"
asked "127.0.0.1:$port"
export AWS_ENDPOINT_URL=$s3

# ---- Parts that seem to be missing: no command goes on without them ----
control fault "match=HEAD+/bucket/base/tokenizer_config.json&do=denied&times=1000"
far=("${train[@]}" --model_name_or_path s3://bucket/base --dataset_name s3://bucket/rows/train.jsonl --max_steps 2)
expect 3 "must allow s3:GetObject" "${far[@]}" --output_dir s3://bucket/doubt
control list | grep -E "doubt/(checkpoint|adapter|run.json)" && fail "a run began without a file that is there"
expect 3 "must allow s3:GetObject" "${far[@]}" --output_dir doubt
[ ! -e doubt/run.json ] || fail "a run began without a file that is there"
expect 3 "must allow s3:GetObject" merge --model_name_or_path s3://bucket/base --adapter_name_or_path s3://bucket/virtual --output_dir merged
[ ! -e merged ] || fail "a model was merged without a file that is there"
control fault clear=1
expect 0 "" merge --model_name_or_path s3://bucket/base --adapter_name_or_path s3://bucket/virtual --output_dir merged

# ---- The instance: only where a variable names its service, which has a second for an answer ----
unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
rm -r .aws
expect 2 "there are no credentials" "${inspect[@]}"
grep -q "/-/instance" server/log && fail "the instance was asked without a variable"
AWS_EC2_METADATA_SERVICE_ENDPOINT=$s3/-/instance expect 0 "model folder" "${inspect[@]}"
grep -q "^PUT /-/instance/latest/api/token" server/log || fail "no token of version 2: $(cat server/log)"
AWS_EC2_METADATA_SERVICE_ENDPOINT=$s3/-/nothing expect 3 "credentials of the instance" "${inspect[@]}"
keep
PYTHONPATH=$root/tests/tools python3 -c '
import socket, time
from with_parent import end_with_parent
end_with_parent()
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen()
open("silent.new", "w").write(str(listener.getsockname()[1]))
import os
os.rename("silent.new", "silent")
time.sleep(600)' &
silent=$!
trap 'kill $server $silent 2>/dev/null; rm -rf "$folder"' EXIT
wait_for 100 test -e silent
begun=$(date +%s%N)
AWS_EC2_METADATA_SERVICE_ENDPOINT=http://127.0.0.1:$(cat silent) expect 5 "credentials of the instance" "${inspect[@]}"
took=$((($(date +%s%N) - begun) / 1000000))
keep
# A second, and what a busy machine adds.
[ $took -ge 900 ] && [ $took -lt 6000 ] ||
    fail "a service that does not answer was waited for $took ms"

# ---- Pods: what ends is renewed, with the token that the file then has ----
# renewed NAME FILE: a run during which all keys end soon, and the file has another text after the first use.
renewed() {
    local name=$1
    control role expires=200 # less than what is renewed ahead
    "$trimtab" "${train[@]}" --model_name_or_path s3://bucket/base --dataset_name s3://bucket/rows/train.jsonl --max_steps 4 \
        --output_dir "s3://bucket/$name" >printed 2>err </dev/null || fail "$name: $(cat err)"
    keep
    same "$name/adapter_model.safetensors" local/adapter_model.safetensors
    [ "$(grep -c "$2" server/log)" -gt 5 ] || fail "$name asked for keys $(grep -c "$2" server/log) times"
    control role expires=3600
}
printf 'token of the pod' >token
export AWS_CONTAINER_CREDENTIALS_FULL_URI=$s3/-/container AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE=$folder/token
renewed container /-/container
printf 'another token' >token
expect 3 "credentials of the container" "${inspect[@]}"
keep
rm token
expect 3 "cannot open" "${inspect[@]}"
AWS_CONTAINER_CREDENTIALS_FULL_URI=http://user:secretPASS@127.0.0.1:$port/-/container expect 2 "no https:// address" "${inspect[@]}"
keep
unset AWS_CONTAINER_CREDENTIALS_FULL_URI AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE
printf 'identity+of/pod=' >identity
export AWS_WEB_IDENTITY_TOKEN_FILE=$folder/identity AWS_ROLE_ARN=arn:aws:iam::1:role/x AWS_ENDPOINT_URL_STS=$s3/-/sts
renewed identity /-/sts
# An identity that was replaced meanwhile is the one that is used.
printf 'identity+of/other=' >identity
expect 3 "AWS_ROLE_ARN must trust" "${inspect[@]}"
keep
AWS_ENDPOINT_URL_STS=https://user:secretPASS@127.0.0.1:9 expect 2 "no address of a server" "${inspect[@]}"
keep
unset AWS_WEB_IDENTITY_TOKEN_FILE AWS_ROLE_ARN AWS_ENDPOINT_URL_STS

control dump "folder=$folder/seen"
cp server/log seen/
for secret in secretTESTkey rolesecret roletoken metadatatoken identity.of/ "token of the pod" "another token" secretPASS Signature=; do
    grep -rlaF -- "$secret" seen tmp && fail "'$secret' is in what was written"
done
finish
