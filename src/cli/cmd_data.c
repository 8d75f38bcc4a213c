#include <math.h>
#include <stddef.h>

#include "cli/data_report.h"
#include "cli/job_call.h"
#include "cli/wrap.h"
#include "job/inputs.h"

struct data_command {
    struct tt_job_spec job; /* must be first: the offsets of its settings apply here */
    struct tt_job_call call;
    int64_t rows, skip;
    bool json;
};

enum { TEXT_COLUMN = 18 }; /* of the figures */

#define FIELD(member) .offset = offsetof(struct data_command, member)

/* One row reads as one paragraph. */
/* clang-format off */
static const struct tt_setting own_settings[] = {
    {.name = "rows", .type = TT_SETTING_INT, FIELD(rows), .default_text = "3", .transient = true, .maximum = INT32_MAX,
     .help = "Number of samples of the training data to show."},
    {.name = "skip", .type = TT_SETTING_INT, FIELD(skip), .default_text = "0", .transient = true, .maximum = INFINITY,
     .help = "Number of samples before the first one that is shown."},
    {.name = "json", .type = TT_SETTING_BOOL, FIELD(json), .default_text = "false", .transient = true,
     .help = "Print the result as one JSON object."},
    {.name = NULL},
};
/* clang-format on */

static size_t list_sections(struct tt_setting_section *sections)
{
    return tt_job_call_sections(TT_JOB_TRAIN, own_settings, offsetof(struct data_command, call), sections);
}

static tt_status resolve(void *target, struct tt_settings *settings)
{
    struct data_command *command = target;
    TT_TRY(tt_job_call_read(&command->call, settings));
    return tt_train_resolve(settings, &command->job);
}

/* The samples as they are, the figures fitted to the terminal. */
static tt_status write_text(struct tt_cli *cli, const struct tt_inputs *inputs,
                            const struct tt_data_view *view, struct tt_str *text)
{
    struct tt_str figures = {0};
    const struct tt_wrap wrap = {.columns = tt_report_row_columns(cli->report->out), .indent = TEXT_COLUMN};
    tt_status status = tt_data_report_rows(inputs, view, text);
    if (status == TT_OK) status = tt_data_report_text(inputs, view, false, &figures);
    if (status == TT_OK && inputs->eval != NULL) status = tt_data_report_text(inputs, view, true, &figures);
    if (status == TT_OK) status = tt_wrap_append(text, tt_str_text(&figures), &wrap);
    tt_str_deinit(&figures);
    return status;
}

static tt_status run(struct tt_cli *cli, const struct tt_command_call *call)
{
    const struct data_command *command = call->target;
    tt_status status = TT_OK;
    struct tt_inputs inputs = {0};
    struct tt_str text = {0};
    if (command->call.print_config) return tt_job_call_print(cli, call->settings);
    const bool colour = tt_report_colours_out(cli->report);
    char date[TT_CHAT_DATE_BYTES];
    struct tt_inputs_config config = tt_inputs_config_of(&command->job, TT_INPUTS_DATA);
    struct tt_data_config data = *config.data;
    tt_chat_now(date);
    if (data.date == NULL) data.date = date;
    config.data = &data;
    const struct tt_data_view view = {
        .data = &data,
        .first = (size_t)command->skip,
        .count = (size_t)command->rows,
        .on = colour ? "\033[32m" : "[[",
        .off = colour ? "\033[0m" : "]]",
    };
    TT_GO(tt_inputs_open(&config, &inputs));
    TT_GO(command->json ? tt_data_report_json(&inputs, &view, &text)
                        : write_text(cli, &inputs, &view, &text));
    status = tt_report_print_escaped(cli->report, tt_str_text(&text), text.bytes);
out:
    tt_str_deinit(&text);
    tt_inputs_close(&inputs);
    return status;
}

const struct tt_command_ops tt_cmd_data = {
    .usage = " --model_name_or_path FOLDER --dataset_name FILE [--rows N] [--skip N] [--json] "
             "[--config FILE.yaml] [--key value ...]",
    .sections = list_sections,
    .target_bytes = sizeof(struct data_command),
    .resolve = resolve,
    .run = run,
};
