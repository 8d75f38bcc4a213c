#include <ctype.h>
#include <stddef.h>
#include <string.h>

#include "base/file.h"
#include "cli/job_call.h"
#include "cli/report.h"
#include "cli/signals.h"
#include "job/task.h"

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

/* A path as a word of the shell, where it needs no quotes. */
static bool is_word(const char *path)
{
    for (const char *c = path; *c != '\0'; c++)
        if (strchr("/._-+@%=:,", *c) == NULL && !isalnum((unsigned char)*c)) return false;
    return path[0] != '\0';
}

/* The storage of the base that the adapter was trained over; none for a folder that says it itself. */
static const char *base_flag(const struct tt_quantization_config *given)
{
    if (given->load_in_4bit) return " --load_in_4bit true";
    if (given->load_in_8bit) return " --load_in_8bit true";
    return given->load_in_fp8 || given->base_dtype == TT_BASE_FP8 ? " --base_dtype fp8" : "";
}

/* The command that tries the trained model. */
static tt_status suggest(struct tt_report *report, const struct tt_job_spec *job, const char *output)
{
    const char *model = job->model.model_name_or_path;
    struct tt_path chat_template;
    struct tt_str line = {0};
    tt_status status = TT_OK;
    if (report->json || !tt_tasks[job->task]->writes_text || !is_word(output)) return TT_OK;
    if (job->model.scores.wanted) return TT_OK;
    TT_TRY(tt_path_set(&chat_template, output, "chat_template.jinja"));
    bool chats = tt_path_exists(chat_template.text);
    TT_GO(tt_str_printf(&line, "  try it: trimtab %s --model_name_or_path ", chats ? "chat" : "generate"));
    if (job->model.use_peft) {
        if (model == NULL || !is_word(model)) goto out;
        TT_GO(tt_str_printf(&line, "%s%s%s --adapter_name_or_path ", model, base_flag(&job->quantization),
                            job->quantization.fp8_lm_head ? " --fp8_lm_head true" : ""));
    }
    TT_GO(tt_str_printf(&line, "%s%s", output, chats ? "" : " --prompt '...'"));
    tt_report_line(report, tt_str_text(&line));
out:
    tt_str_deinit(&line);
    return status;
}

static tt_status run(struct tt_cli *cli, const struct tt_command_call *call)
{
    const struct train_command *command = call->target;
    struct tt_train_summary summary = {0};
    struct tt_report *report = cli->report;
    if (command->call.print_config) return tt_job_call_print(cli, call->settings);
    report->bar = report->bar && !command->job.watch.disable_tqdm;
    report->once = true; /* a run in the folder of a complete one reads its inputs twice */
    tt_signals_outlive_readers();
    struct tt_train_observer observer = tt_report_observer(report);
    if (!report->quiet) tt_signals_name_checkpoints(command->job.run.output_dir);
    tt_status status = tt_trainer_run(&command->job, call->settings, &observer, cli->cancel, &summary);
    tt_signals_name_checkpoints(NULL);
    if (status == TT_ERR_CANCELLED && summary.steps == 0)
        tt_hint("training had not begun: the same command starts it again");
    if (summary.steps > 0 && (status == TT_OK || status == TT_ERR_CANCELLED))
        tt_report_summary(report, &summary);
    if (status == TT_OK && summary.steps > 0) status = suggest(report, &command->job, summary.output);
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
