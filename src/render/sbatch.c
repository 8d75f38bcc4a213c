/* A batch script for Slurm: srun starts one process for each rank, and the exit codes decide whether the job goes back
 * into the queue. srun is told the processors of a task, because it does not take them from sbatch; the shell runs its
 * trap for EXIT also when SIGTERM ends it.
 *
 * Sources: sbatch(1), srun(1) and scontrol(1) of Slurm 22.05. */
#include "render/render_impl.h"

static long long threads_of_rank(const struct tt_render_run *run)
{
    long long threads = (long long)run->spec->cpus_per_node / run->ranks;
    return threads > 0 ? threads : 1;
}

static tt_status write_options(const struct tt_render_run *run, struct tt_str *text)
{
    const struct tt_render_sizes *sizes = &run->sizes;
    const struct tt_render_spec *spec = run->spec;
    TT_TRY(tt_str_printf(text, "#!/bin/bash\n#SBATCH --job-name=%s\n#SBATCH --nodes=%lld\n", spec->name,
                         (long long)spec->nodes));
    TT_TRY(tt_str_printf(text, "#SBATCH --ntasks-per-node=%d\n#SBATCH --cpus-per-task=%lld\n", run->ranks,
                         threads_of_rank(run)));
    if (!run->plan->is_host) TT_TRY(tt_str_printf(text, "#SBATCH --gpus-per-node=%d\n", run->ranks));
    return tt_str_printf(text,
                         "#SBATCH --mem=%zuM\n#SBATCH --signal=TERM@%lld\n#SBATCH --requeue\n"
                         "#SBATCH --open-mode=append\n",
                         sizes->memory >> 20, (long long)sizes->grace);
}

static tt_status write_codes(struct tt_str *text, const int *codes, int count)
{
    for (int i = 0; i < count; i++) TT_TRY(tt_str_printf(text, "%s%d", i > 0 ? " | " : "", codes[i]));
    return TT_OK;
}

/* Processes that fail with another end with its exit code, and srun returns the highest. */
static tt_status write_policy(const struct tt_render_run *run, struct tt_str *text)
{
    const struct tt_render_exits *exits = run->exits;
    TT_TRY(tt_str_append_text(text, "case $code in\n0 | "));
    TT_TRY(write_codes(text, exits->permanent, exits->permanent_count));
    TT_TRY(tt_str_append_text(text, ") exit $code ;; # done, or not to be cured by a retry\n"));
    TT_TRY(write_codes(text, exits->resumable, exits->resumable_count));
    return tt_str_printf(text,
                         ") ;; # stopped, with a checkpoint\n"
                         "*) [ \"${SLURM_RESTART_COUNT:-0}\" -lt %lld ] || exit $code ;;\n"
                         "esac\nscontrol requeue \"$SLURM_JOB_ID\" || exit $code\n",
                         (long long)run->spec->max_restarts);
}

tt_status tt_render_write_sbatch(const struct tt_render_run *run, struct tt_str *text)
{
    static const char end[] = "END_OF_TRIMTAB_CONFIGURATION";
    const char *name = run->spec->name;
    const struct tt_render_sizes *sizes = &run->sizes;
    TT_TRY(write_options(run, text));
    TT_TRY(tt_str_printf(
        text,
        "# rendered by trimtab; a stop takes %.3g s. The folder that this is submitted from must be "
        "visible on all nodes.\n"
        "set -uo pipefail\nhere=${SLURM_SUBMIT_DIR:-$PWD}/%s-$SLURM_JOB_ID\n"
        "mkdir -p \"$here\" && chmod 700 \"$here\" || exit 5\n",
        2 * sizes->step_seconds + sizes->save_seconds, name));
    TT_TRY(tt_str_printf(text, "cat >\"$here/config.yaml\" <<'%s'\n%s%s\n", end, run->config, end));
    TT_TRY(tt_str_append_text(
        text, "trap 'rm -f \"$here/secret\"' EXIT # also where Slurm ends the job\n"
              "(umask 077 && od -An -N32 -tx1 /dev/urandom | tr -d ' \\n' >\"$here/secret\") || exit 5\n"
              "MASTER_ADDR=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\n"
              "MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))\n"
              "export MASTER_ADDR MASTER_PORT TRIMTAB_JOB_SECRET_FILE=$here/secret\n"
              "export RUN_UID=$SLURM_JOB_ID RUN_ATTEMPT=${SLURM_RESTART_COUNT:-0}\n"));
    TT_TRY(tt_str_printf(text,
                         "srun --wait=120 --cpus-per-task=\"${SLURM_CPUS_PER_TASK:-%lld}\" trimtab train "
                         "--config \"$here/config.yaml\"\ncode=$?\nrm -f \"$here/secret\"\n",
                         threads_of_rank(run)));
    return write_policy(run, text);
}
