/* trimtab convert-config: another trainer's configuration as one of ours. */
#include <stddef.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/job_call.h"
#include "recipe/recipe.h"

static const char usage[] =
    " FILE.yaml [--output OURS.yaml] [--from axolotl|llama-factory] [--partial true]\n\n"
    "Reads a configuration of axolotl, or of LLaMA-Factory with the dataset_info.json of its "
    "dataset_dir, and writes the\nsame training for --config of trimtab train, with the line "
    "that each value comes from. Values that the other program\nhas by default and this one has "
    "not are written too. What cannot be carried over is an error that lists all of it.\n";

struct convert_command {
    const char *output, *from;
    bool partial;
};

/* One row reads as one paragraph. */
/* clang-format off */
static const struct tt_setting own_settings[] = {
    {.name = "output", .type = TT_SETTING_STRING, .offset = offsetof(struct convert_command, output),
     .path = TT_PATH_WRITE, .help = "File to write; not given: standard output."},
    {.name = "from", .type = TT_SETTING_STRING, .offset = offsetof(struct convert_command, from),
     .choices = "axolotl llama-factory", .help = "The program that the file is of; not given: found by its keys."},
    {.name = "partial", .type = TT_SETTING_BOOL, .offset = offsetof(struct convert_command, partial),
     .default_text = "false",
     .help = "Write the rest where keys cannot be carried over, with these as comments; otherwise nothing is written, "
             "so that no script trains something else unseen."},
    {.name = NULL},
};
/* clang-format on */

static size_t list_sections(struct tt_setting_section *sections)
{
    sections[0] = (struct tt_setting_section){"Conversion", own_settings, 0};
    return 1;
}

/* Each line as one of the log. */
static void say(const char *lines, enum tt_log_level level)
{
    for (const char *at = lines; *at != '\0'; at += *at == '\n') {
        size_t bytes = strcspn(at, "\n");
        tt_log(level, "%.*s", (int)bytes, at);
        at += bytes;
    }
}

static tt_status append_lacking(struct tt_str *yaml, const char *lines)
{
    if (*lines != '\0') TT_TRY(tt_str_append_text(yaml, "#\n# Not carried over:\n"));
    for (const char *at = lines; *at != '\0'; at += *at == '\n') {
        size_t bytes = strcspn(at, "\n");
        TT_TRY(tt_str_printf(yaml, "# - %.*s\n", (int)bytes, at));
        at += bytes;
    }
    return TT_OK;
}

/* Whether a training takes what was made. */
static tt_status check(const struct tt_str *yaml)
{
    struct tt_settings *settings = NULL;
    struct tt_job_spec *job = tt_calloc(1, sizeof *job);
    tt_status status = job == NULL ? TT_ERR_MEMORY : TT_OK;
    TT_GO(status);
    TT_GO(tt_job_settings_create(TT_JOB_TRAIN, job, sizeof *job, &settings));
    TT_GO(tt_settings_parse_yaml(settings, yaml->data, yaml->bytes, "the converted configuration"));
    TT_GO(tt_train_resolve(settings, job));
out:
    tt_settings_destroy(settings);
    tt_free(job);
    return status;
}

static tt_status write(struct tt_cli *cli, const struct convert_command *command, const struct tt_str *yaml)
{
    if (command->output == NULL) return tt_report_print(cli->report, tt_str_text(yaml));
    return tt_file_write_atomic(command->output, yaml->data, yaml->bytes);
}

static tt_status convert(struct tt_cli *cli, const struct convert_command *command, const char *path,
                         struct tt_settings *settings)
{
    struct tt_str notes = {0}, lacking = {0}, yaml = {0};
    tt_status status = TT_OK;
    const struct tt_recipe_request request = {path, command->from, command->partial};
    TT_GO(tt_recipe_convert(&request, settings, &notes, &lacking));
    TT_GO(tt_str_printf(&yaml, "# Made by trimtab convert-config from %s.\n", path));
    TT_GO(append_lacking(&yaml, tt_str_text(&lacking)));
    TT_GO(tt_settings_write_given(settings, &yaml));
    say(tt_str_text(&notes), TT_LOG_NOTICE);
    say(tt_str_text(&lacking), TT_LOG_WARNING);
    if (lacking.bytes == 0) TT_GO(check(&yaml));
    status = write(cli, command, &yaml);
out:
    tt_str_deinit(&notes);
    tt_str_deinit(&lacking);
    tt_str_deinit(&yaml);
    return status;
}

static tt_status run(struct tt_cli *cli, const struct tt_command_call *call)
{
    struct tt_settings *settings = NULL;
    struct tt_job_spec *job = tt_calloc(1, sizeof *job);
    tt_status status = job == NULL ? TT_ERR_MEMORY : TT_OK;
    TT_GO(status);
    TT_GO(tt_job_settings_create(TT_JOB_TRAIN, job, sizeof *job, &settings));
    status = convert(cli, call->target, call->argv[0], settings);
out:
    tt_settings_destroy(settings);
    tt_free(job);
    return status;
}

static tt_status parse_words(int argc, char *const *argv, int *count)
{
    *count = argc > 0 && argv[0][0] != '-';
    if (*count == 1) return TT_OK;
    tt_status status = tt_fail(TT_ERR_USAGE, "convert-config needs a file");
    tt_hint("trimtab convert-config FILE.yaml --output OURS.yaml");
    return status;
}

const struct tt_command_ops tt_cmd_convert_config = {
    .usage = usage,
    .sections = list_sections,
    .target_bytes = sizeof(struct convert_command),
    .parse_words = parse_words,
    .run = run,
};
