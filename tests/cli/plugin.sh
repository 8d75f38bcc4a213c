#!/bin/bash
# The GPU plugin is looked for beside the program, however that was started. What lies there here is no library, so that
# the error of `--device cuda` shows which file was opened; no GPU is needed.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
unset TRIMTAB_CUDA_PLUGIN

mkdir programs elsewhere
cp "$trimtab" programs/trimtab && echo "beside the program" >programs/libtrimtab_cuda.so
echo "in the present folder" >elsewhere/libtrimtab_cuda.so
ln -s "$folder/programs/trimtab" elsewhere/linked

# opens WORDS...: a run started so, in another folder than the program's, opens the plugin beside the program.
opens() {
    (cd elsewhere && "$@" bench train --config_json "$root/bench/shapes/tiny.json" --device cuda) >said 2>&1 &&
        fail "$*: a file of text was taken for a plugin"
    grep -qF "$folder/programs/libtrimtab_cuda.so: " said || fail "$*: another file was opened:" "$(cat said)"
}
opens "$folder/programs/trimtab"
opens ../programs/trimtab
opens ./linked
opens env PATH="$folder/programs:$PATH" trimtab
finish
