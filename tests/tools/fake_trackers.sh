# Sourced after command_line.sh: a virtual environment "with" whose libraries of trackers only record (fake_tracker.py) in
# $RECORD, one "bare" without them, and secrets in the environment.
if ! command -v python3 >/dev/null || ! python3 -m venv --without-pip with 2>/dev/null; then
    echo "skipped: no python3 with venv"
    exit 77
fi
python3 -m venv --without-pip bare
all=(wandb mlflow trackio comet_ml swanlab)
site=$(echo with/lib/python3*/site-packages)
cp "$root/tests/tools/fake_tracker.py" "$site/"
for name in "${all[@]}"; do
    mkdir "$site/$name" && printf 'import fake_tracker\nfake_tracker.install(__name__)\n' >"$site/$name/__init__.py"
done
mkdir "$site/mlflow/utils" && : >"$site/mlflow/utils/__init__.py"
printf 'MAX_PARAM_VAL_LENGTH = 6000\nMAX_PARAMS_TAGS_PER_BATCH = 100\n' >"$site/mlflow/utils/validation.py"
export TRIMTAB_PYTHON=$folder/with/bin/python RECORD=$folder/calls
export WANDB_API_KEY=0123456789abcdef-secret WANDB_PROJECT=proj MLFLOW_EXPERIMENT_NAME=exp TRIMTAB_JOB_SECRET=another-secret-of-ranks
mkdir calls
# check OUTPUT_DIR TRACKERS...: compares the record of a run, and begins a new one
check() {
    python3 "$root/tests/tools/check_trackers.py" calls "$@" >checked 2>&1 || fail "what the libraries got:" "$(tail -n 5 checked)"
    rm -rf calls && mkdir calls
}
no_secrets() {
    grep -rlE "$WANDB_API_KEY|hunter2|$TRIMTAB_JOB_SECRET" "$@" printed err && fail "a secret is in these files"
}
