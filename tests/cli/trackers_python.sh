#!/usr/bin/env bash
# The follower of trackers keeps to Python 3.8: its syntax, by the parser; and with a Python 3.8 of this machine, or the
# one that PYTHON38 names, a training feeds a recording library.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
command -v python3 >/dev/null || { echo "skipped: there is no python3"; exit 77; }
cat >parse.py <<'PYTHON'
import ast, sys
ast.parse(open(sys.argv[1], encoding="utf-8").read(), feature_version=(3, 8))
try:
    ast.parse("match 1:\n case 1: pass\n", feature_version=(3, 8))
except SyntaxError:
    sys.exit(0)
sys.exit("this parser takes later syntax too")
PYTHON
python3 -I parse.py "$root/src/run/python/tracker.py" >parsed 2>&1 || fail "syntax of Python 3.8:" "$(tail -n 3 parsed)"
old=
for candidate in "${PYTHON38:-}" python3.8 "$HOME/.pyenv/versions"/3.8.*/bin/python; do
    [ -n "$candidate" ] && "$candidate" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 8))' 2>/dev/null && old=$candidate
done
if [ -z "$old" ] || ! "$old" -m venv --without-pip with 2>/dev/null; then
    echo "skipped: a training with Python 3.8, which is not here (PYTHON38)"
    finish
fi
site=$(echo with/lib/python3*/site-packages)
cp "$root/tests/tools/fake_tracker.py" "$site/"
mkdir "$site/wandb" && printf 'import fake_tracker\nfake_tracker.install(__name__)\n' >"$site/wandb/__init__.py"
mkdir calls
TRIMTAB_PYTHON=$folder/with/bin/python RECORD=$folder/calls expect 0 'wandb: began run' train --max_steps 2 --max_length 128 \
    --model_name_or_path "$root/examples/demo/model" --dataset_name "$root/examples/demo/data/train.jsonl" --output_dir out \
    --logging_steps 1 --device cpu --report_to wandb
[ "$(grep -c '"train/loss"' calls/wandb.jsonl)" = 2 ] || fail "rows with Python 3.8: $(cat err calls/wandb.jsonl)"
finish
