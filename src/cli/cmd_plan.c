#include <string.h>

#include "base/json.h"
#include "cli/commands.h"
#include "job/accelerate.h"
#include "job/settings.h"
#include "run/plan_offline.h"

const char tt_cmd_plan_usage[] =
    " --model_name_or_path FOLDER | --config_json FILE [--device h200] [--ranks N] [--device_memory 24GiB] "
    "[--json] [--key value ...]\n\n"
    "--device takes a chip too, which need not be here: h200, rtx4090, ... (a word that is none lists them).";

struct plan_command {
    struct tt_train_config config; /* first: the offsets of tt_train_sections hold */
    struct tt_plan_options options;
    const char *config_file;
    bool json;
};

#define OWN(member) .offset = offsetof(struct plan_command, member)

/* One row reads as one paragraph. */
/* clang-format off */
static const struct tt_setting own_settings[] = {
    {.name = "config_file", .aliases = "accelerate_config", .type = TT_SETTING_STRING, OWN(config_file),
     .help = "accelerate's configuration file (FSDP), as for train."},
    {.name = "config_json", .type = TT_SETTING_STRING, OWN(options.config_json),
     .help = "A config.json to plan for, such as bench/shapes/m11b.json; not given: that of model_name_or_path."},
    {.name = "sequence_length", .aliases = "seq_length seq", .type = TT_SETTING_INT, OWN(options.sequence_length),
     .default_text = "0", .minimum = 0, .maximum = 1 << 20, .help = "Tokens of each row; 0: max_length."},
    {.name = "network_bandwidth", .type = TT_SETTING_BYTES, OWN(options.network_bandwidth), .default_text = "0",
     .help = "Bytes a second that a rank receives from other machines (50GB: an adapter of 400 Gbit/s for each GPU); "
             "0: what servers with the chip usually have."},
    {.name = "json", .type = TT_SETTING_BOOL, OWN(json), .default_text = "false",
     .help = "Print the plan as one JSON object."},
    {.name = NULL},
};
/* clang-format on */

size_t tt_cmd_plan_sections(struct tt_setting_section *sections)
{
    size_t count = 0;
    sections[count++] = (struct tt_setting_section){"Plan", own_settings, 0};
    for (size_t i = 0; i < tt_train_section_count; i++) sections[count++] = tt_train_sections[i];
    return count;
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

/* --device takes chips here too, which are no devices of a run. */
static const char *find_device(int argc, char *const *argv)
{
    static const char flag[] = "--device";
    const char *device = NULL;
    for (int i = 0; i < argc; i++) {
        size_t bytes = sizeof flag - 1;
        if (strncmp(argv[i], flag, bytes) != 0) continue;
        if (argv[i][bytes] == '=') device = argv[i] + bytes + 1;
        if (argv[i][bytes] == 0 && i + 1 < argc) device = argv[i + 1];
    }
    return device;
}

static tt_status make_plan(struct tt_cli *cli, struct plan_command *command, struct tt_settings *settings,
                           int argc, char *const *argv)
{
    static const char *const own[] = {"device", NULL};
    struct tt_plan plan;
    TT_TRY(tt_settings_parse_flags(settings, argc, argv, own));
    if (command->config_file != NULL) TT_TRY(tt_accelerate_read(command->config_file, settings));
    /* A plan needs no data and meets nobody, and a config.json may stand alone. */
    if (command->options.config_json != NULL && !tt_settings_is_set(settings, "model_name_or_path"))
        TT_TRY(tt_settings_set(settings, "model_name_or_path", ".", "--config_json"));
    if (!tt_settings_is_set(settings, "dataset_name"))
        TT_TRY(tt_settings_set(settings, "dataset_name", "-", "plan"));
    if (!tt_settings_is_set(settings, "main_process_ip"))
        TT_TRY(tt_settings_set(settings, "main_process_ip", "-", "plan"));
    TT_TRY(tt_train_settings_resolve(settings, &command->config));
    const char *device = find_device(argc, argv);
    if (device != NULL && command->config.use_cpu && strcmp(device, "cpu") != 0) {
        tt_status status = tt_fail(TT_ERR_USAGE, "use_cpu is on, and --device is '%s'", device);
        tt_hint("set one of them");
        return status;
    }
    command->options.device = device != NULL ? device : tt_train_config_device(&command->config);
    TT_TRY(tt_plan_offline(&command->config, &command->options, &plan));
    TT_TRY(command->json ? print_json(cli, &plan) : print_table(cli, &plan));
    return tt_plan_check(&plan);
}

tt_status tt_cmd_plan(struct tt_cli *cli, int argc, char *const *argv)
{
    struct plan_command command = {0};
    struct tt_setting_section sections[TT_COMMAND_SECTIONS_MAX];
    struct tt_settings *settings = NULL;
    size_t count = tt_cmd_plan_sections(sections);
    TT_TRY(tt_settings_create(sections, count, &command, sizeof command, &settings));
    tt_status status = make_plan(cli, &command, settings, argc, argv);
    tt_settings_destroy(settings);
    return status;
}
