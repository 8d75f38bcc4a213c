#!/bin/bash
# The S3 server of the tests and trimtab as AWS' own client sees them: boto3 lists, reads, puts in parts and puts on
# conditions at that server, and reads what trimtab has put there.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
"${TT_PYTHON:-python3}" -c "import boto3" 2>/dev/null || { echo "skipped: there is no boto3 (TT_PYTHON)"; exit 77; }
source "$root/tests/tools/s3.sh"

control page keys=3
expect 0 "done: 4 steps" "${train[@]}" --max_steps 4 --model_name_or_path s3://bucket/base --dataset_name s3://bucket/rows/train.jsonl \
    --output_dir s3://bucket/run
cat >check.py <<'END'
import hashlib, io, json, os, sys
import boto3, botocore.config, botocore.exceptions
from boto3.s3.transfer import TransferConfig

plain = botocore.config.Config(request_checksum_calculation="when_required", response_checksum_validation="when_required",
                               s3={"addressing_style": "path"}, region_name="us-east-1")
s3 = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"], config=plain)
keys = [row["Key"] for page in s3.get_paginator("list_objects_v2").paginate(Bucket="bucket", Prefix="run/")
        for row in page.get("Contents", [])]
assert "run/checkpoint-4/manifest.json" in keys and len(keys) > 10, keys
assert not [key for key in keys if "lock" in key or "probe" in key or "saving" in key], keys
folders = [row["Prefix"] for page in s3.get_paginator("list_objects_v2").paginate(Bucket="bucket", Prefix="run/", Delimiter="/")
           for row in page.get("CommonPrefixes", [])]
assert folders == ["run/checkpoint-2/", "run/checkpoint-4/", "run/runs/"], folders
for name, row in json.loads(s3.get_object(Bucket="bucket", Key="run/checkpoint-4/manifest.json")["Body"].read())["files"].items():
    head = s3.head_object(Bucket="bucket", Key=f"run/checkpoint-4/{name}")
    assert head["ContentLength"] == row["bytes"], row
part = s3.get_object(Bucket="bucket", Key="base/model.safetensors", Range="bytes=8-15")
assert part["Body"].read() == open("base/model.safetensors", "rb").read()[8:16]
data = os.urandom(12 << 20)
s3.upload_fileobj(io.BytesIO(data), "bucket", "a b/+large", Config=TransferConfig(multipart_threshold=5 << 20, multipart_chunksize=5 << 20))
assert s3.get_object(Bucket="bucket", Key="a b/+large")["Body"].read() == data
s3.put_object(Bucket="bucket", Key="once", Body=b"1", IfNoneMatch="*")
try:
    s3.put_object(Bucket="bucket", Key="once", Body=b"2", IfNoneMatch="*")
    sys.exit("a condition was ignored")
except botocore.exceptions.ClientError as error:
    assert error.response["Error"]["Code"] == "PreconditionFailed", error
s3.put_object(Bucket="bucket", Key="rows/more.jsonl", Body=b'{"prompt": "9 +", "completion": " 9"}\n')
s3.delete_object(Bucket="bucket", Key="once")
END
"${TT_PYTHON:-python3}" check.py || fail "boto3 sees something else"
expect 0 "rows              1" data --model_name_or_path s3://bucket/base --dataset_name s3://bucket/rows/more.jsonl
finish
