#!/usr/bin/env bash
# trimtab upload, against a hub of this machine (tests/tools/fake_hub.py): LFS objects as a whole and in parts, each once,
# one commit; broken connections and expired addresses; no token where the hub's store is.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
source "$root/tests/tools/hub_server.sh"
"$trimtab" download nobody/none 2>err
grep -q "needs libcurl" err && { echo "skipped: there is no libcurl"; exit 77; }

mkdir -p out/sub out/checkpoint-1
head -c 500000 /dev/urandom >out/big.safetensors # three parts of the hub's store
head -c 3000 /dev/urandom >out/mid.bin && cp out/mid.bin out/sub/same.bin
echo '# A model' >out/README.md && : >out/empty
expect 2 "needs a token" upload me/thing out
HF_TOKEN=hf_old expect 3 "it may have expired" upload me/thing out
export HF_TOKEN=hf_good
echo '{"state": 1}' >out/checkpoint-1/state.json && echo secret >out/.hidden && echo half >out/file.incomplete
faults "cut 1 /put/" "503 1 /put/" "429 1 /commit/" "500 1 /batch"
expect 0 "/me/thing/commit/" upload me/thing out --exclude "checkpoint-*" --private true
there=hub_root/models/me/thing
[ "$(cd $there && find . -type f | sort | tr '\n' ' ')" = "./.private ./README.md ./big.safetensors ./empty ./mid.bin ./sub/same.bin " ] ||
    fail "the files: $(cd $there && find . -type f)"
for file in README.md big.safetensors empty mid.bin sub/same.bin; do cmp out/$file $there/$file || fail "$file differs"; done
grep "127.0.0.2" hub_root/log | grep -v "token=- " && fail "a token went to the store"
# What the hub has is not sent again; a name without an owner is the token's owner's; a file in a folder.
before=$(requests "PUT ")
commits=$(requests "POST 127.0.0.1 /api/models/me/thing/commit/")
expect 0 "/me/thing/commit/" upload thing out --exclude "checkpoint-*"
[ "$(requests "PUT ")" -eq "$before" ] || fail "an object was sent again"
[ "$(requests "POST 127.0.0.1 /api/models/me/thing/commit/")" -eq "$commits" ] || fail "a commit without a change"
echo '# Another' >out/README.md
expect 0 "/me/thing/commit/" upload thing out --exclude "checkpoint-*"
[ "$(requests "POST 127.0.0.1 /api/models/me/thing/commit/")" -eq $((commits + 1)) ] || fail "no commit with a change"
cmp out/README.md $there/README.md || fail "the file that changed"
expect 0 "" upload me/rows out/README.md --repo_type dataset --path_in_repo data --commit_message "Add rows"
cmp out/README.md hub_root/datasets/me/rows/data/README.md || fail "the file in a folder"
expect 0 "" upload me/part out --include "*.md" "sub/*"
[ "$(cd hub_root/models/me/part && find . -type f | wc -l)" -eq 2 ] || fail "the patterns"
# What was uploaded comes back.
expect 0 "" download me/thing
cmp out/big.safetensors "$(cat printed)"/big.safetensors || fail "another file came back"
# Errors.
head -c 4000 /dev/urandom >out/mid.bin
faults "expired 1 /put/$(sha256sum <out/mid.bin | cut -d' ' -f1)"
expect 3 "may have expired" upload me/thing out
expect 3 "there is no file or folder" upload me/thing nothing
mkdir nothing && expect 3 "no file to upload" upload me/thing nothing
expect 2 "OWNER/NAME" upload a/b/c out
expect 2 "for example" upload me/thing
HF_HUB_OFFLINE=1 expect 2 "HF_HUB_OFFLINE" upload me/thing out

# huggingface_hub checks the server of this test.
if "${TT_PYTHON:-python3}" -c "import huggingface_hub" 2>/dev/null; then
    cat >check.py <<'PYTHON'
from huggingface_hub import HfApi
api = HfApi()
api.create_repo("me/theirs")
api.upload_folder(repo_id="me/theirs", folder_path="out", ignore_patterns=["checkpoint-*", ".hidden", "*.incomplete"])
PYTHON
    HF_HUB_DISABLE_XET=1 "${TT_PYTHON:-python3}" check.py >checked 2>&1 || fail "huggingface_hub: $(tail -n 5 checked)"
    cmp out/big.safetensors hub_root/models/me/theirs/big.safetensors || fail "its upload differs"
else
    echo "skipped: huggingface_hub is not installed (TT_PYTHON)"
fi
finish
