#include "cli/job_call.h"

#include "job/accelerate.h"

#define FIELD(member) .offset = offsetof(struct tt_job_call, member)

/* One row reads as one paragraph. */
/* clang-format off */
const struct tt_setting tt_job_call_settings[] = {
    {.name = "config_file", .aliases = "accelerate_config", .type = TT_SETTING_STRING,
     FIELD(config_file), .transient = true, .path = TT_PATH_READ,
     .help = "accelerate's configuration file (FSDP), unchanged; settings from other sources override it."},
    {.name = "print_config", .aliases = "dry_run", .type = TT_SETTING_BOOL, FIELD(print_config),
     .default_text = "false", .transient = true,
     .help = "Check the settings, print all resolved values and exit; model and data are not opened."},
    {.name = "log_format", .type = TT_SETTING_CHOICE, FIELD(log_format), .default_text = "text", .transient = true,
     .choices = "text json", .environment = "TRIMTAB_LOG_FORMAT",
     .help = "text: lines to read; json: one JSON object a line, with time, level, rank and event."},
    {.name = NULL},
};
/* clang-format on */

size_t tt_job_call_sections(enum tt_job_kind kind, const struct tt_setting *own, size_t call_offset,
                            struct tt_setting_section *sections)
{
    size_t count = 0;
    sections[count++] = (struct tt_setting_section){"This call", tt_job_call_settings, call_offset};
    if (own != NULL) sections[count++] = (struct tt_setting_section){"This call", own, 0};
    for (size_t i = 0; i < tt_job_rows[kind].count; i++) sections[count++] = tt_job_rows[kind].sections[i];
    return count;
}

tt_status tt_job_call_read(const struct tt_job_call *call, struct tt_settings *settings)
{
    return call->config_file != NULL ? tt_accelerate_read(call->config_file, settings) : TT_OK;
}

tt_status tt_job_call_print(struct tt_cli *cli, const struct tt_settings *settings)
{
    struct tt_str text = {0};
    tt_status status = tt_settings_write_yaml(settings, &text);
    if (status == TT_OK) status = tt_report_print(cli->report, tt_str_text(&text));
    tt_str_deinit(&text);
    return status;
}
