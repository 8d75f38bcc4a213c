#!/bin/bash
# Object storage when something goes wrong: two runs below one prefix, servers without locks, connections that break,
# refusals that a retry cures, expired tokens, clocks that differ, damaged objects: right, or one clear error. No secret is
# in what is printed, written or said to the server in an address.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
source "$root/tests/tools/s3.sh"
mkdir seen

remote=("${train[@]}" --model_name_or_path s3://bucket/base --dataset_name s3://bucket/rows/train.jsonl --max_steps 4)
expect 0 "done: 4 steps" "${train[@]}" --model_name_or_path base --dataset_name rows/train.jsonl --max_steps 4 --output_dir local
keep() { cat printed err >>seen/all; }
# run NAME: a run into that prefix has the bytes of the local one.
run() {
    expect 0 "done: 4 steps" "${remote[@]}" --output_dir "s3://bucket/$1"
    keep
    same "$1/adapter_model.safetensors" local/adapter_model.safetensors
}

# ---- What a retry cures ----
control fault "match=GET+/bucket/base/model&do=cut&times=1"
control fault "match=GET+/bucket/rows&do=503&times=1"
control fault "match=GET+/bucket.list&do=429&times=1"
control fault "match=PUT+/bucket/broken/.trimtab.lock&do=lost&times=1"
control fault "match=PUT+/bucket/broken/checkpoint-2/adapter_model&do=lost&times=1"
run broken
control skew seconds=7200
run skewed
control skew seconds=0

# ---- Other credentials ----
unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
expect 2 "there are no credentials" "${remote[@]}" --output_dir s3://bucket/none
keep
mkdir .aws && printf '[default]\naws_access_key_id = WRONG\n[work]\naws_access_key_id = AKIDTEST\naws_secret_access_key=secretTESTkey\n' >.aws/credentials
printf '[profile work]\nregion = eu-central-1\n' >.aws/config
AWS_PROFILE=work run profile
printf '[default]\naws_access_key_id = AKIDTEST\naws_secret_access_key = secretWRONGkey\n' >.aws/credentials
expect 3 "SignatureDoesNotMatch" "${remote[@]}" --output_dir s3://bucket/none
keep
rm -r .aws
printf 'token of the pod\n' >token
export AWS_CONTAINER_CREDENTIALS_FULL_URI=$s3/-/container AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE=$folder/token
control fault "match=PUT+/bucket/pod/run.json&do=expired&times=1"
run pod
AWS_CONTAINER_CREDENTIALS_FULL_URI=http://192.0.2.1/x expect 2 "no https:// address" "${remote[@]}" --output_dir s3://bucket/none
unset AWS_CONTAINER_CREDENTIALS_FULL_URI AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE
printf 'identity+of/pod=\n' >identity
export AWS_WEB_IDENTITY_TOKEN_FILE=$folder/identity AWS_ROLE_ARN=arn:aws:iam::1:role/x AWS_ENDPOINT_URL_STS=$s3/-/sts
run identity
control role expires=-100
expect 3 "ExpiredToken" "${remote[@]}" --output_dir s3://bucket/none
keep
control role expires=3600
printf 'identity+of/other=\n' >identity
expect 3 "AWS_ROLE_ARN must trust" "${remote[@]}" --output_dir s3://bucket/none
keep
unset AWS_WEB_IDENTITY_TOKEN_FILE AWS_ROLE_ARN AWS_ENDPOINT_URL_STS
export AWS_ACCESS_KEY_ID=AKIDTEST AWS_SECRET_ACCESS_KEY=secretTESTkey

# ---- Two runs below one prefix ----
# held NAME: starts a run that is delayed at its first checkpoint; its process is $held.
held() {
    control fault "match=PUT+/bucket/$1/checkpoint-2/manifest&do=503&times=1000"
    "$trimtab" "${remote[@]}" --output_dir "s3://bucket/$1" >held.out 2>&1 </dev/null &
    held=$!
    wait_for 100 grep -q "^PUT /bucket/$1/checkpoint-2/manifest" server/log
}
held two
tr '\0' '\n' </proc/$held/cmdline >seen/words
expect 2 "is in use by another run: process $held" "${remote[@]}" --output_dir s3://bucket/two
keep
control fault clear=1
wait $held || fail "the first run ended with $?:" "$(cat held.out)"
same two/adapter_model.safetensors local/adapter_model.safetensors
# One that is silent for its lease loses the prefix, and ends.
# It is one of another machine, with its own folder for temporary files, and stands still meanwhile.
mkdir other
TMPDIR=$folder/other held late
kill -STOP $held
control age "path=/bucket/late/.trimtab.lock&seconds=100"
control fault clear=1
expect 0 "which has not renewed its lock" "${remote[@]}" --output_dir s3://bucket/late --overwrite_output_dir
code=0
kill -CONT $held
wait $held || code=$?
[ $code -eq 2 ] && grep -q "was taken over by another run" held.out || fail "the first run ended with $code:" "$(cat held.out)"
same late/adapter_model.safetensors local/adapter_model.safetensors

# A server that knows no conditions.
control conditions on=0
expect 2 "ignores the condition of a put" "${remote[@]}" --output_dir s3://bucket/blind
control list | grep blind && fail "left below a prefix that was refused"
expect 0 "done: 4 steps" "${remote[@]}" --output_dir s3://bucket/blind --unlocked_store true
control conditions on=1

# ---- Damage ----
control damage path=/bucket/two/checkpoint-4/training_state.safetensors
expect 0 "checkpoint-2" "${remote[@]}" --output_dir s3://bucket/two --max_steps 6 --resume_from_checkpoint true
keep

# ---- Objects in parts ----
python3 - <<'END'
import json
config = json.load(open("base/config.json"))
config.update(hidden_size=512, intermediate_size=1024, num_hidden_layers=4)
json.dump(config, open("base/config.json", "w"))
END
rm base/model.safetensors
large=("${train[@]}" --model_name_or_path base --init random --use_peft false --dataset_name rows/train.jsonl --max_steps 1
    --save_steps 1 --output_dir)
expect 0 "done: 1 step" "${large[@]}" large
control fault "match=PUT+/bucket/large/.*partNumber=2&do=503&times=1"
control fault "match=PUT+/bucket/large/.*partNumber=1&do=cut&times=1"
control fault "match=POST+/bucket/large/.*uploadId&do=lost&times=1"
expect 0 "done: 1 step" "${large[@]}" s3://bucket/large
grep -q "partNumber=3" server/log || fail "no object was put in parts"
[ "$(control uploads)" -eq 0 ] || fail "uploads are left: $(control uploads)"
for name in model.safetensors checkpoint-1/training_state.safetensors; do same "large/$name" "large/$name"; done
control fault "match=PUT+/bucket/large2/.*partNumber=2&do=wrong&times=1000"
expect 3 "XAmzContentSHA256Mismatch" "${large[@]}" s3://bucket/large2
[ "$(control uploads)" -eq 0 ] || fail "uploads are left after an error: $(control uploads)"

# ---- Secrets ----
control dump "folder=$folder/seen"
cp -r server/log held.out seen/
[ "$(ls seen | wc -l)" -gt 20 ] || fail "little was seen: $(ls seen)"
for secret in secretTESTkey secretWRONGkey rolesecret roletoken identity.of/ "token of the pod" Signature=; do
    grep -rlaF -- "$secret" seen tmp && fail "'$secret' is in what was written"
done
finish
