#include "cli/commands.h"
#include "job/accelerate.h"
#include "job/settings.h"

const char tt_cmd_train_usage[] = " --model_name_or_path FOLDER --dataset_name FILE [--config FILE.yaml] "
                                  "[--config_file FSDP.yaml] [--key value ...]";

struct train_command {
    struct tt_train_config config; /* first: the offsets of tt_train_sections hold */
    const char *config_file;
    bool print_config;
};

/* One row reads as one paragraph. */
/* clang-format off */
static const struct tt_setting own_settings[] = {
    {.name = "config_file", .aliases = "accelerate_config", .type = TT_SETTING_STRING,
     .offset = offsetof(struct train_command, config_file), .transient = true,
     .help = "accelerate's configuration file (FSDP), read as it is; settings given elsewhere win over it."},
    {.name = "print_config", .aliases = "dry_run", .type = TT_SETTING_BOOL,
     .offset = offsetof(struct train_command, print_config), .default_text = "false", .transient = true,
     .help = "Check the settings, print all of them as they are resolved, and stop; model and data are not opened."},
    {.name = NULL},
};
/* clang-format on */

size_t tt_cmd_train_sections(struct tt_setting_section *sections)
{
    size_t count = 0;
    sections[count++] = (struct tt_setting_section){"This call", own_settings, 0};
    for (size_t i = 0; i < tt_train_section_count; i++) sections[count++] = tt_train_sections[i];
    return count;
}

static tt_status print_config(struct tt_cli *cli, const struct tt_settings *settings)
{
    struct tt_str text = {0};
    tt_status status = tt_settings_write_yaml(settings, &text);
    if (status == TT_OK) status = tt_report_print(cli->report, tt_str_text(&text));
    tt_str_deinit(&text);
    return status;
}

static tt_status train(struct tt_cli *cli, struct train_command *command, struct tt_settings *settings)
{
    struct tt_train_summary summary = {0};
    struct tt_report *report = cli->report;
    if (command->config_file != NULL) TT_TRY(tt_accelerate_read(command->config_file, settings));
    TT_TRY(tt_train_settings_resolve(settings, &command->config));
    if (command->print_config) return print_config(cli, settings);
    report->bar = report->bar && !command->config.disable_tqdm;
    struct tt_train_observer observer = tt_report_observer(report);
    tt_status status = tt_trainer_run(&command->config, settings, &observer, cli->cancel, &summary);
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
    tt_status status = tt_settings_parse_flags(settings, argc, argv, NULL);
    if (status == TT_OK) status = train(cli, &command, settings);
    tt_settings_destroy(settings);
    return status;
}
