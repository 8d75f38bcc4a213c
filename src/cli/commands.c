#include "cli/commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/store.h"
#include "cli/exit_codes.h"
#include "cli/hub_names.h"
#include "cli/job_call.h"
#include "cli/signals.h"
#include "cli/termination.h"
#include "job/resolve.h"
#include "launch/launch.h"
#include "store/s3.h"

/* Longer than a process takes from its error to its exit. */
static const double linger_seconds = 10.0;

#define COMMAND(name, summary) {#name, summary, &tt_cmd_##name},
#define COMMAND_AS(file, name, summary) {name, summary, &tt_cmd_##file},
const struct tt_command tt_commands[] = {
#include "cli/commands.def"
    {NULL, NULL, NULL},
};
#undef COMMAND_AS
#undef COMMAND

const struct tt_command *tt_command_find(const char *name)
{
    if (tt_objective_is_named(name)) name = "train";
    for (const struct tt_command *command = tt_commands; command->name != NULL; command++)
        if (strcmp(command->name, name) == 0) return command;
    return NULL;
}

size_t tt_command_sections(const struct tt_command *command, struct tt_setting_section *sections)
{
    return command->ops->sections != NULL ? command->ops->sections(sections) : 0;
}

/* The command here that other programs call `name`. */
static const char *find_elsewhere(const char *name)
{
    static const char *const names[][2] = {
        {"finetune", "train"},      {"fine-tune", "train"},      {"fit", "train"},
        {"evaluate", "eval"},       {"infer", "generate"},       {"inference", "generate"},
        {"predict", "generate"},    {"vllm", "serve"},           {"api", "serve"},
        {"convert", "export gguf"}, {"gguf", "export gguf"},     {"convert_config", "convert-config"},
        {"preprocess", "data"},     {"estimate-memory", "plan"}, {"tensorboard", "dashboard"},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i][0], name) == 0) return names[i][1];
    return NULL;
}

static tt_status set_objective(struct tt_settings *settings, const char *objective)
{
    return objective != NULL ? tt_settings_set(settings, "objective", objective, "the command") : TT_OK;
}

/* A flag or a file may not say another one. */
static tt_status check_objective(const struct tt_settings *settings, const char *objective)
{
    char condition[80];
    if (objective == NULL) return TT_OK;
    snprintf(condition, sizeof condition, "objective=%s", objective);
    if (tt_settings_hold(settings, condition)) return TT_OK;
    tt_status status = tt_fail(TT_ERR_USAGE, "the command is '%s', and %s says another objective", objective,
                               tt_settings_origin(settings, "objective"));
    tt_hint("trimtab train takes the objective from its settings");
    return status;
}

static tt_status fail_unknown(const char *name)
{
    const char *nearest = find_elsewhere(name);
    int distance = nearest != NULL ? 0 : 4;
    for (const struct tt_command *command = tt_commands; command->name != NULL && distance > 0; command++) {
        int here = tt_edit_distance(command->name, name);
        if (here >= distance) continue;
        distance = here;
        nearest = command->name;
    }
    tt_status status = tt_fail(TT_ERR_USAGE, "there is no command '%.60s'", name);
    if (nearest != NULL)
        tt_hint("did you mean 'trimtab %s'?", nearest);
    else
        tt_hint("trimtab --help lists the commands");
    return status;
}

/* `trimtab train --help` and `trimtab --help train` mean the same. */
static bool wants_help(int argc, char *const *argv)
{
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return true;
    return false;
}

/* Whether the words, or else the environment, ask for JSON: errors of the words themselves are reported so as well. */
static bool wants_json(int argc, char *const *argv)
{
    const char *format = getenv("TRIMTAB_LOG_FORMAT");
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        if (strncmp(word, "--log_format", 12) != 0 && strncmp(word, "--log-format", 12) != 0) continue;
        if (word[12] == '=') format = word + 13;
        if (word[12] == 0 && i + 1 < argc) format = argv[i + 1];
    }
    return format != NULL && strcmp(format, "json") == 0;
}

/* The setting of a job, which may come from a file. */
static void choose_format(struct tt_report *report, const struct tt_setting_section *sections,
                          const void *target)
{
    if (sections[0].rows != tt_job_call_settings) return;
    const struct tt_job_call *call = (const void *)((const char *)target + sections[0].base_offset);
    tt_report_set_json(report, call->log_format == TT_LOG_FORMAT_JSON);
}

/* The words of a command that are no flags name files and folders, or actions. */
static tt_status check_words(const char *command, int count, char *const *words)
{
    for (int i = 0; i < count; i++) TT_TRY(tt_setting_check_scheme(command, words[i]));
    return TT_OK;
}

/* `objective`: of a training; NULL: its settings say it. */
static tt_status call_command(struct tt_cli *cli, const struct tt_command *command, const char *objective,
                              int argc, char *const *argv)
{
    const struct tt_command_ops *ops = command->ops;
    tt_status status = TT_OK;
    struct tt_setting_section sections[TT_COMMAND_SECTIONS_MAX];
    struct tt_command_call call = {.argc = argc, .argv = argv};
    if (ops->sections != NULL) call.argc = 0;
    if (ops->parse_words != NULL) TT_TRY(ops->parse_words(argc, argv, &call.argc));
    TT_TRY(check_words(command->name, call.argc, argv));
    if (ops->sections == NULL) return ops->run(cli, &call);
    call.target = tt_calloc(1, ops->target_bytes);
    if (call.target == NULL) return TT_ERR_MEMORY;
    TT_GO(tt_settings_create(sections, ops->sections(sections), call.target, ops->target_bytes,
                             &call.settings));
    call.flag_count = argc - call.argc;
    call.flags = argv + call.argc;
    TT_GO(set_objective(call.settings, objective));
    TT_GO(tt_settings_parse_flags(call.settings, call.flag_count, call.flags, NULL));
    TT_GO(check_objective(call.settings, objective));
    if (tt_settings_is_set(call.settings, "log_format")) choose_format(cli->report, sections, call.target);
    TT_GO(ops->resolve != NULL ? ops->resolve(call.target, call.settings) : tt_settings_check(call.settings));
    choose_format(cli->report, sections, call.target);
    TT_GO(ops->run(cli, &call));
out:
    tt_settings_destroy(call.settings);
    tt_free(call.target);
    return status;
}

/* "render deployment" is the command render-deployment, whose settings are others than those of render. */
static const struct tt_command *find_joined(int argc, char *const *argv)
{
    char name[80];
    if (argc <= 2 || argv[2][0] == '-' || strcmp(argv[1], "help") == 0) return NULL;
    snprintf(name, sizeof name, "%.30s-%.30s", argv[1], argv[2]);
    return tt_command_find(name);
}

static tt_status run_command(struct tt_cli *cli, int argc, char *const *argv)
{
    const char *name = argc > 1 ? argv[1] : "--help";
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) name = "help";
    bool version = strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0;
    /* one line, for scripts */
    if (version && argc == 2) return tt_report_print(cli->report, "trimtab " TT_VERSION "\n");
    if (version) name = "version";
    const char *objective = tt_objective_is_named(name) ? name : NULL; /* a training, as TRL's commands are */
    const struct tt_command *command = tt_command_find(name), *joined = find_joined(argc, argv);
    if (joined != NULL) {
        command = joined;
        argc--;
        argv++;
    }
    if (command == NULL) return fail_unknown(name);
    if (argc <= 1) return tt_help_print(cli, NULL);
    if (wants_help(argc - 2, argv + 2)) return tt_help_print(cli, command);
    return call_command(cli, command, objective, argc - 2, argv + 2);
}

/* A store that did not answer whether a path exists is the cause where that path was then taken for a missing one. */
static tt_status check_stores(tt_status status)
{
    struct tt_error error;
    bool concluded = status == TT_OK || status == TT_ERR_DATA || status == TT_ERR_USAGE;
    tt_error_copy(&error);
    tt_status kept = tt_store_failure();
    if (kept != TT_OK && concluded) return kept;
    if (status != TT_OK) (void)tt_error_restore(&error);
    return status;
}

int tt_cli_main(int argc, char *const *argv, FILE *out, FILE *err)
{
    static struct tt_cancel cancel; /* static: the signal handler uses it until the process ends */
    struct tt_report report;
    struct tt_cli cli = {&report, &cancel};
    tt_report_init(&report, out, err);
    tt_report_set_json(&report, wants_json(argc, argv));
    tt_signals_install(&cancel);
    tt_s3_store_register();
    tt_log_set_sink(tt_report_log, &report);
    struct tt_hub_names names = {.cli = &cli};
    tt_hub_names_open(&names);
    tt_status status = check_stores(run_command(&cli, argc, argv));
    tt_hub_names_close(&names);
    if (status != TT_OK) {
        tt_report_error(&report);
        tt_termination_write(tt_error_last());
    }
    tt_log_set_sink(NULL, NULL);
    tt_report_deinit(&report);
    const struct tt_error *error = tt_error_last();
    int code = status == error->status ? tt_exit_code_of_error(error) : tt_exit_code_of(status);
    /* An MPI launcher kills all processes once one has ended: the process that reports the error must end first. */
    if (status != TT_OK && error->reported_elsewhere && tt_launch_kills_all())
        tt_signals_linger(code, linger_seconds);
    return code;
}
