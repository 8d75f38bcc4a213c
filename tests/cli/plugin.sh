#!/bin/bash
# The GPU plugin is searched beside the program, however the program was started. The file there is not a library,
# so the error of `--device cuda` names the file that was opened; no GPU is needed.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
unset TRIMTAB_CUDA_PLUGIN

mkdir programs elsewhere
cp "$trimtab" programs/trimtab && echo "beside the program" >programs/libtrimtab_cuda.so
echo "in the present folder" >elsewhere/libtrimtab_cuda.so
ln -s "$folder/programs/trimtab" elsewhere/linked

# opens WORDS...: a run started in this way, from another folder than the program's, opens the plugin beside the
# program.
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
