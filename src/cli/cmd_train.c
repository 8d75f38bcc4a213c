#include <stddef.h>

#include "cli/job_call.h"

struct train_command {
    struct tt_job_spec job; /* must be first: the offsets of its settings apply here */
    struct tt_job_call call;
};

static size_t list_sections(struct tt_setting_section *sections)
{
    return tt_job_call_sections(TT_JOB_TRAIN, NULL, offsetof(struct train_command, call), sections);
}

static tt_status resolve(void *target, struct tt_settings *settings)
{
    struct train_command *command = target;
    TT_TRY(tt_job_call_read(&command->call, settings));
    return tt_train_resolve(settings, &command->job);
}

static tt_status run(struct tt_cli *cli, const struct tt_command_call *call)
{
    const struct train_command *command = call->target;
    struct tt_train_summary summary = {0};
    struct tt_report *report = cli->report;
    if (command->call.print_config) return tt_job_call_print(cli, call->settings);
    report->bar = report->bar && !command->job.watch.disable_tqdm;
    struct tt_train_observer observer = tt_report_observer(report);
    tt_status status = tt_trainer_run(&command->job, call->settings, &observer, cli->cancel, &summary);
    if (status == TT_ERR_CANCELLED && summary.steps == 0)
        tt_hint("training had not begun: the same command starts it again");
    if (summary.steps > 0 && (status == TT_OK || status == TT_ERR_CANCELLED))
        tt_report_summary(report, &summary);
    return status;
}

const struct tt_command_ops tt_cmd_train = {
    .usage = " --model_name_or_path FOLDER --dataset_name FILE [--config FILE.yaml] "
             "[--config_file FSDP.yaml] [--key value ...]\n\n"
             "A detection: --task detection --local_image_dir FOLDER, or --dataset_name FILE.parquet with "
             "images, [--weights_path FILE.pth] [--key value ...].\n",
    .sections = list_sections,
    .target_bytes = sizeof(struct train_command),
    .resolve = resolve,
    .run = run,
};
