#include <stddef.h>

#include "cli/job_call.h"

const char tt_cmd_train_usage[] = " --model_name_or_path FOLDER --dataset_name FILE [--config FILE.yaml] "
                                  "[--config_file FSDP.yaml] [--key value ...]";

struct train_command {
    struct tt_train_config job; /* first: the offsets of its rows hold */
    struct tt_job_call call;
};

size_t tt_cmd_train_sections(struct tt_setting_section *sections)
{
    return tt_job_call_sections(TT_JOB_TRAIN, NULL, offsetof(struct train_command, call), sections);
}

static tt_status train(struct tt_cli *cli, struct train_command *command, struct tt_settings *settings)
{
    struct tt_train_summary summary = {0};
    struct tt_report *report = cli->report;
    TT_TRY(tt_train_resolve(settings, &command->job));
    if (command->call.print_config) return tt_job_call_print(cli, settings);
    report->bar = report->bar && !command->job.disable_tqdm;
    struct tt_train_observer observer = tt_report_observer(report);
    tt_status status = tt_trainer_run(&command->job, settings, &observer, cli->cancel, &summary);
    if (status == TT_ERR_CANCELLED && summary.steps == 0)
        tt_hint("it had not begun to train: the same command starts it again");
    if (summary.steps > 0 && (status == TT_OK || status == TT_ERR_CANCELLED))
        tt_report_summary(report, &summary);
    return status;
}

tt_status tt_cmd_train(struct tt_cli *cli, int argc, char *const *argv)
{
    struct train_command command = {0};
    struct tt_setting_section sections[TT_COMMAND_SECTIONS_MAX];
    struct tt_settings *settings = NULL;
    size_t count = tt_cmd_train_sections(sections);
    TT_TRY(tt_settings_create(sections, count, &command, sizeof command, &settings));
    tt_status status = tt_job_call_parse(&command.call, settings, argc, argv);
    if (status == TT_OK) status = train(cli, &command, settings);
    tt_settings_destroy(settings);
    return status;
}
