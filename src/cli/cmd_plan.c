#include <stddef.h>

#include "base/json.h"
#include "cli/job_call.h"
#include "run/plan_offline.h"

struct plan_command {
    struct tt_plan_spec spec; /* must be first: the offsets of its settings apply here */
    struct tt_job_call call;
    bool json;
};

/* One row reads as one paragraph. */
/* clang-format off */
static const struct tt_setting own_settings[] = {
    {.name = "json", .type = TT_SETTING_BOOL, .offset = offsetof(struct plan_command, json), .default_text = "false",
     .transient = true, .help = "Print the plan as one JSON object."},
    {.name = NULL},
};
/* clang-format on */

static size_t list_sections(struct tt_setting_section *sections)
{
    return tt_job_call_sections(TT_JOB_PLAN, own_settings, offsetof(struct plan_command, call), sections);
}

static struct tt_json_value *number_or_null(double number)
{
    return number > 0 ? tt_json_new_real(number) : tt_json_new_null();
}

static tt_status print_json(struct tt_cli *cli, const struct tt_plan *plan)
{
    struct tt_str text = {0};
    struct tt_plan_row rows[TT_PLAN_ROWS_MAX];
    int count = tt_plan_rows(plan, rows);
    struct tt_json_value *purposes = tt_json_new_object(), *levels = tt_json_new_list();
    for (int i = 0; i < count; i++)
        tt_json_set(purposes, rows[i].key, tt_json_new_integer((int64_t)rows[i].bytes));
    for (int i = 1; i + 1 < plan->block_count; i++)
        tt_json_append(levels, tt_json_new_string(tt_level_name(plan->levels[i])));
    double seconds = tt_plan_estimate(plan);
    struct tt_json_value *object = tt_json_pack(
        "{s:b,s:s,s:i,s:i,s:I,s:I,s:o,s:I,s:o,s:o,s:o}", "fits", (int)plan->fits, "device", plan->device,
        "ranks", plan->ranks.count, "machines", plan->ranks.machines, "device_bytes",
        (int64_t)plan->memory.total_peak, "limit_bytes", (int64_t)plan->limit_bytes, "purposes", purposes,
        "host_bytes", (int64_t)plan->memory.host_total, "step_seconds", number_or_null(seconds),
        "tokens_per_second",
        number_or_null(seconds > 0 ? (double)plan->step_tokens * plan->ranks.count / seconds : 0),
        "recompute", levels);
    if (object == NULL) return tt_fail(TT_ERR_MEMORY, "out of memory for the plan");
    tt_json_set(object, "workspace_parts",
                tt_json_pack("{s:I,s:I}", "attention", (int64_t)plan->attention_bytes, "logits_chunk",
                             (int64_t)plan->logits_bytes));
    if (!plan->fits) tt_json_set(object, "advice", tt_json_new_string(plan->advice));
    tt_status status = tt_json_write(object, 0, false, &text);
    if (status == TT_OK) status = tt_str_append_char(&text, '\n');
    if (status == TT_OK) status = tt_report_print(cli->report, tt_str_text(&text));
    tt_str_deinit(&text);
    tt_json_release(object);
    return status;
}

static tt_status print_table(struct tt_cli *cli, const struct tt_plan *plan)
{
    struct tt_str text = {0};
    tt_status status = tt_plan_format(plan, &text);
    if (status == TT_OK) status = tt_str_append_char(&text, '\n');
    if (status == TT_OK) status = tt_report_print(cli->report, tt_str_text(&text));
    tt_str_deinit(&text);
    return status;
}

static tt_status resolve(void *target, struct tt_settings *settings)
{
    struct plan_command *command = target;
    TT_TRY(tt_job_call_read(&command->call, settings));
    return tt_plan_resolve(settings, &command->spec);
}

static tt_status run(struct tt_cli *cli, const struct tt_command_call *call)
{
    const struct plan_command *command = call->target;
    struct tt_plan plan;
    if (command->call.print_config) return tt_job_call_print(cli, call->settings);
    TT_TRY(tt_plan_offline(&command->spec, &plan));
    TT_TRY(command->json ? print_json(cli, &plan) : print_table(cli, &plan));
    return tt_plan_check(&plan);
}

const struct tt_command_ops tt_cmd_plan = {
    .usage = " --model_name_or_path FOLDER | --config_json FILE [--device h200] [--ranks N] [--device_memory "
             "24GiB] "
             "[--json] [--key value ...]",
    .sections = list_sections,
    .target_bytes = sizeof(struct plan_command),
    .resolve = resolve,
    .run = run,
};
