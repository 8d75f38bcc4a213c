#include <stddef.h>

#include "base/alloc.h"
#include "base/json.h"
#include "cli/job_call.h"
#include "cli/plan_table.h"
#include "job/task.h"
#include "planning/offline.h"

struct plan_command {
    struct tt_plan_spec spec; /* must be first: the offsets of its settings apply here */
    struct tt_job_call call;
    bool json, units, details;
    int max; /* TT_PLAN_MAX_... */
    const char *compare;
};

/* One row reads as one paragraph. */
/* clang-format off */
#define TASK(name, size, what) " " size
static const char max_choices[] = "none batch"
#include "job/tasks.def"
    ;
static const struct tt_setting own_settings[] = {
    {.name = "json", .type = TT_SETTING_BOOL, .offset = offsetof(struct plan_command, json), .default_text = "false",
     .transient = true, .help = "Print the plan as one JSON object."},
    {.name = "max", .type = TT_SETTING_CHOICE, .offset = offsetof(struct plan_command, max), .default_text = "none",
     .choices = max_choices, .transient = true,
     .help = "Plan the largest per_device_train_batch_size, sequence_length, or image_size of a detection (with "
             "max_image_size in proportion), that fits; the next larger one does not."},
    {.name = "compare", .type = TT_SETTING_STRING, .offset = offsetof(struct plan_command, compare), .transient = true,
     .help = "Plan every combination of the values of one or more settings, one row each: \"device=h200,h100 "
             "ranks=2,4\"."},
    {.name = "units", .type = TT_SETTING_BOOL, .offset = offsetof(struct plan_command, units), .default_text = "false",
     .transient = true, .help = "List every sharded unit with its tensors, their types, shapes and bytes."},
    {.name = "details", .type = TT_SETTING_BOOL, .offset = offsetof(struct plan_command, details),
     .default_text = "false", .transient = true,
     .help = "After the table: the trainable and all parameters, the memory left, what bounds the step, and a faster "
             "sharding_strategy if there is one."},
    {.name = NULL},
};
/* clang-format on */

enum { WORD_BYTES = 24 };

/* The word of --max. */
static const char *max_word(const struct plan_command *command, char word[WORD_BYTES])
{
    const struct tt_setting row = {.choices = max_choices};
    return tt_setting_word(&row, command->max, word, WORD_BYTES);
}

static size_t list_sections(struct tt_setting_section *sections)
{
    return tt_job_call_sections(TT_JOB_PLAN, own_settings, offsetof(struct plan_command, call), sections);
}

static const struct tt_task_ops *task_of(const struct plan_command *command)
{
    return tt_tasks[command->spec.job.task];
}

static struct tt_json_value *number_or_null(double number)
{
    return number > 0 ? tt_json_new_real(number) : tt_json_new_null();
}

static struct tt_json_value *largest_object(const struct plan_command *command,
                                            const struct tt_plan_largest *largest)
{
    char word[WORD_BYTES];
    struct tt_json_value *object =
        tt_json_pack("{s:s,s:I,s:b,s:I}", "of", max_word(command, word), "value", largest->value, "bounded",
                     (int)largest->bounded, "next_bytes", (int64_t)largest->next_bytes);
    if (largest->follows != NULL)
        tt_json_set(object, largest->follows, tt_json_new_integer(largest->follower));
    return object;
}

/* `largest`: NULL, or the result of --max. */
static tt_status print_json(struct tt_cli *cli, const struct tt_plan *plan,
                            const struct plan_command *command, const struct tt_plan_largest *largest)
{
    struct tt_plan_row rows[TT_PLAN_ROWS_MAX];
    int count = tt_plan_rows(plan, rows);
    struct tt_json_value *purposes = tt_json_new_object(), *levels = tt_json_new_list();
    for (int i = 0; i < count; i++)
        tt_json_set(purposes, rows[i].key, tt_json_new_integer((int64_t)rows[i].bytes));
    for (int i = 0; i < plan->block_count; i++)
        if (tt_plan_chooses(plan, i))
            tt_json_append(levels, tt_json_new_string(tt_level_name(plan->levels[i])));
    double seconds = tt_plan_estimate(plan);
    struct tt_json_value *object = tt_json_pack(
        "{s:b,s:s,s:i,s:i,s:I,s:I,s:o,s:I,s:o,s:o,s:o}", "fits", (int)plan->fits, "device", plan->device,
        "ranks", plan->ranks.count, "machines", plan->ranks.machines, "device_bytes",
        (int64_t)plan->memory.total_peak, "limit_bytes", (int64_t)plan->limit_bytes, "purposes", purposes,
        "host_bytes", (int64_t)plan->memory.host_total, "step_seconds", number_or_null(seconds),
        tt_count_units[plan->unit].rate_name,
        number_or_null(seconds > 0 ? (double)plan->step_count * plan->ranks.count / seconds : 0), "recompute",
        levels);
    tt_json_set(object, "workspace_parts",
                tt_json_pack("{s:I,s:I}", "attention", (int64_t)plan->attention_bytes, "logits_chunk",
                             (int64_t)plan->logits_bytes));
    tt_json_set(object, "trainable_params", tt_json_new_integer(plan->trainable_count));
    tt_json_set(object, "all_params", tt_json_new_integer(plan->param_count));
    tt_json_set(object, "headroom_bytes",
                plan->limit_bytes > 0
                    ? tt_json_new_integer((int64_t)plan->limit_bytes - (int64_t)tt_plan_need(plan))
                    : tt_json_new_null());
    if (plan->found_batch > 0)
        tt_json_set(object, "per_device_train_batch_size", tt_json_new_integer(plan->found_batch));
    if (plan->prompts[0] != '\0') tt_json_set(object, "prompts", tt_json_new_string(plan->prompts));
    if (largest != NULL) tt_json_set(object, "largest", largest_object(command, largest));
    if (!plan->fits) tt_json_set(object, "advice", tt_json_new_string(plan->advice));
    return tt_report_print_json(cli->report, object, 0);
}

static tt_status format_details(const struct plan_command *command, const struct tt_plan *plan,
                                struct tt_str *text)
{
    char bytes[32];
    TT_TRY(tt_str_printf(text, "  trainable params: %lld of %lld, %.4f %%\n",
                         (long long)plan->trainable_count, (long long)plan->param_count,
                         100.0 * (double)plan->trainable_count / (double)plan->param_count));
    if (plan->limit_bytes > tt_plan_need(plan))
        TT_TRY(tt_str_printf(
            text, "  headroom: %s a rank\n",
            tt_format_bytes((double)(plan->limit_bytes - tt_plan_need(plan)), bytes, sizeof bytes)));
    return tt_plan_offline_bounds(&command->spec, plan, text);
}

static tt_status format_largest(const struct plan_command *command, const struct tt_plan *plan,
                                const struct tt_plan_largest *largest, struct tt_str *text)
{
    char more[32];
    TT_TRY(tt_str_printf(text, "the largest that fits: --%s %lld", tt_plan_max_setting(command->max),
                         (long long)largest->value));
    if (largest->follows != NULL)
        TT_TRY(tt_str_printf(text, " --%s %lld", largest->follows, (long long)largest->follower));
    TT_TRY(tt_str_append_text(text, "; "));
    if (largest->bounded)
        return tt_str_printf(text, "%s\n",
                             command->max == TT_PLAN_MAX_BATCH ? "a larger micro batch is not possible"
                                                               : task_of(command)->size.end);
    return tt_str_printf(
        text, "%lld needs %s more than the limit\n", (long long)largest->value + 1,
        tt_format_bytes((double)(largest->next_bytes - plan->limit_bytes), more, sizeof more));
}

static tt_status print_table(struct tt_cli *cli, const struct tt_plan *plan,
                             const struct plan_command *command, const struct tt_plan_largest *largest)
{
    struct tt_str text = {0};
    tt_status status = tt_plan_format(plan, &text);
    if (status == TT_OK) status = tt_str_append_char(&text, '\n');
    if (status == TT_OK && plan->found_batch > 0)
        status = tt_str_printf(&text, "auto_find_batch_size: --per_device_train_batch_size %lld\n",
                               (long long)plan->found_batch);
    if (status == TT_OK && largest != NULL) status = format_largest(command, plan, largest, &text);
    if (status == TT_OK && command->details) status = format_details(command, plan, &text);
    if (status == TT_OK) status = tt_report_print_wrapped(cli->report, tt_str_text(&text), 4);
    tt_str_deinit(&text);
    return status;
}

static tt_status resolve(void *target, struct tt_settings *settings)
{
    struct plan_command *command = target;
    TT_TRY(tt_job_call_read(&command->call, settings));
    command->spec.here = true;
    return tt_plan_resolve(settings, &command->spec);
}

/* Each of these prints something else than the table. */
static tt_status check_together(const struct plan_command *command)
{
    if (command->units + (command->compare != NULL) + (command->max != TT_PLAN_MAX_NONE) > 1)
        return tt_fail(TT_ERR_USAGE, "--units, --compare and --max exclude each other: give one of them");
    if (command->json && (command->units || command->compare != NULL || command->details))
        return tt_fail(TT_ERR_USAGE, "--json does not go together with --units, --compare and --details");
    char word[WORD_BYTES];
    bool other =
        command->max >= TT_PLAN_MAX_SIZE && command->max != TT_PLAN_MAX_SIZE + command->spec.job.task;
    return other ? tt_fail(TT_ERR_USAGE, "max %s: %s", max_word(command, word), task_of(command)->size.others)
                 : TT_OK;
}

static tt_status print_units(struct tt_cli *cli, const struct plan_command *command)
{
    struct tt_str text = {0};
    tt_status status = tt_plan_offline_units(&command->spec, &text);
    if (status == TT_OK) status = tt_report_print_wrapped(cli->report, tt_str_text(&text), 4);
    tt_str_deinit(&text);
    return status;
}

/* The plan of one combination: the flags of the call, then those of the combination. */
static tt_status plan_flags(void *context, int count, char *const *flags, struct tt_plan *plan)
{
    tt_status status = TT_OK;
    const struct tt_command_call *call = context;
    struct tt_setting_section sections[TT_COMMAND_SECTIONS_MAX];
    struct tt_settings *settings = NULL;
    struct plan_command *command = tt_calloc(1, sizeof *command);
    if (command == NULL) return TT_ERR_MEMORY;
    TT_GO(tt_settings_create(sections, list_sections(sections), command, sizeof *command, &settings));
    TT_GO(tt_settings_parse_flags(settings, call->flag_count, call->flags, NULL));
    TT_GO(tt_settings_parse_flags(settings, count, flags, NULL));
    TT_GO(resolve(command, settings));
    TT_GO(tt_plan_offline_try(&command->spec, plan));
out:
    tt_settings_destroy(settings);
    tt_free(command);
    return status;
}

static tt_status print_comparison(struct tt_cli *cli, const struct plan_command *command,
                                  const struct tt_command_call *call)
{
    struct tt_str text = {0};
    struct tt_command_call copy = *call;
    tt_status status =
        tt_plan_table(command->compare, plan_flags, &copy, tt_report_row_columns(cli->report->out), &text);
    if (status == TT_OK) status = tt_report_print(cli->report, tt_str_text(&text));
    tt_str_deinit(&text);
    return status;
}

static tt_status run(struct tt_cli *cli, const struct tt_command_call *call)
{
    struct plan_command *command = call->target;
    struct tt_plan plan;
    struct tt_plan_largest largest;
    bool most = command->max != TT_PLAN_MAX_NONE;
    if (command->call.print_config) return tt_job_call_print(cli, call->settings);
    TT_TRY(check_together(command));
    cli->report->once = true; /* --max and --compare make many plans of one run */
    if (command->units) return print_units(cli, command);
    if (command->compare != NULL) return print_comparison(cli, command, call);
    TT_TRY(most ? tt_plan_offline_largest(&command->spec, command->max, &plan, &largest)
                : tt_plan_offline(&command->spec, &plan));
    TT_TRY((command->json ? print_json : print_table)(cli, &plan, command, most ? &largest : NULL));
    return tt_plan_check(&plan);
}

const struct tt_command_ops tt_cmd_plan = {
    .usage =
        " --model_name_or_path FOLDER | --config_json FILE [--device h200] [--ranks N] [--device_memory "
        "24GiB] [--json] [--max batch|length|image_size] [--compare 'KEY=A,B ...'] [--units] [--details] "
        "[--key value ...]",
    .sections = list_sections,
    .target_bytes = sizeof(struct plan_command),
    .resolve = resolve,
    .run = run,
};
