#!/usr/bin/env bash
# Outputs where nothing can be written: the error names the place, the hint what to do. Faults stand in for file systems
# and users, so that root sees them too.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
golden=$root/tests/golden
cp -r "$golden/llama3/model" model && cp "$root"/tests/support/tiny_tokenizer/* model/ && chmod -R u+w model
printf '{"text": "a"}\n' >rows.jsonl
train=(train --model_name_or_path model --dataset_name rows.jsonl --max_steps 1 --output_dir)
gguf=(export gguf --model_name_or_path model --output_file)
EPERM=1 EACCES=13 ENOTDIR=20 EROFS=30
# fails ERRNO 'what' 'hint' words...: with the first change to the file system and all others failing
fails() {
    local number=$1 what=$2 hint=$3
    shift 3
    TRIMTAB_FILE_FAULT="1 $number 1" expect 3 "$what" "$@"
    grep -qF -- "  hint: $hint" err || fail "no hint '$hint' of $*:" "$(cat err)"
    [ ! -e new ] || fail "$* left a folder"
}
refused='folders cannot be made there by this user' way='a file lies at this path or above it'
locked='the folder of the output must be writable'
writable='the file system is read-only there: mount a writable volume at this path or above it'
folders_fail() { # words...: those of a command whose output is a folder
    fails $EROFS "cannot create folder 'new': Read-only file system" "$writable" "$@" new/out
    fails $EACCES "cannot create folder 'new': Permission denied" "$refused" "$@" new/out
    fails $EPERM "cannot create folder 'new': Operation not permitted" "$refused" "$@" new/out
    fails $ENOTDIR "cannot create folder 'new': Not a directory" "$way" "$@" new/out
}
folders_fail "${train[@]}"
folders_fail merge --model_name_or_path model --adapter_name_or_path "$golden/llama3/adapter_random" --output_dir
mkdir old
for number in $EROFS $EACCES; do
    fails "$number" "cannot create 'old/.trimtab.lock'" "$locked" "${train[@]}" old
    fails "$number" "cannot create 'old/.x.gguf.trimtab.lock'" "$locked" "${gguf[@]}" old/x.gguf
done
[ -z "$(ls -A old)" ] || fail "files are left in a folder that cannot be written: $(ls -A old)"

# A killed run has left its lock file, which opens (changes 1 and 2), and no file can be created beside it any more.
mkdir killed && touch killed/.trimtab.lock
TRIMTAB_FILE_FAULT="3 $EACCES 1" expect 3 "cannot create 'killed/.write-probe': Permission denied" "${train[@]}" killed
grep -qF 'hint: output_dir must be writable until the run ends' err || fail "no hint:" "$(cat err)"
! grep -q '^step' err || fail "a step was trained: $(cat err)"

# Without faults: a file in the way, a folder that is missing, and for users other than root one without permission.
touch file
expect 3 'hint: a file lies at this path or above it: remove it' "${train[@]}" file/out
expect 3 'hint: the folder of the output must exist: make it with mkdir -p' "${gguf[@]}" nowhere/x.gguf
if [ "$(id -u)" -ne 0 ]; then
    mkdir locked && chmod 555 locked
    expect 3 'hint: folders cannot be made there by this user' "${train[@]}" locked/out
    expect 3 'hint: the folder of the output must be writable' "${train[@]}" locked
fi
finish
