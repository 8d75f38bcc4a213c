#include <string.h>

#include "cli/commands.h"
#include "cli/completion.h"
#include "cli/exit_codes.h"
#include "cli/man.h"
#include "cli/wrap.h"
#include "trimtab.h"

static tt_status write_program_help(struct tt_str *text)
{
    TT_TRY(tt_str_append_text(text, "trimtab " TT_VERSION
                                    ": fine-tunes large language models with sharded LoRA.\n\n"
                                    "usage: trimtab COMMAND [--config FILE.yaml] [--key value ...]\n\n"));
    for (const struct tt_command *command = tt_commands; command->name != NULL; command++)
        TT_TRY(tt_str_printf(text, "  %-10s %s\n", command->name, command->summary));
    TT_TRY(tt_str_append_text(
        text, "\ntrimtab COMMAND --help lists the settings of a command. Names, defaults and\n"
              "meaning are those of TRL's SFTConfig, transformers' TrainingArguments and\n"
              "PEFT's LoraConfig, for all settings that exist there.\n\n"
              "exit codes:\n"));
    for (const struct tt_exit_meaning *meaning = tt_exit_meanings; meaning->text != NULL; meaning++)
        TT_TRY(tt_str_printf(text, "  %-10d %s\n", (int)meaning->code, meaning->text));
    return TT_OK;
}

static tt_status write_command_help(struct tt_str *text, const struct tt_command *command, int columns)
{
    struct tt_setting_section sections[TT_COMMAND_SECTIONS_MAX];
    struct tt_str head = {0};
    const struct tt_wrap wrap = {.columns = columns, .indent = 7, .keep_brackets = true};
    size_t count = tt_command_sections(command, sections);
    tt_status status = tt_str_printf(&head, "usage: trimtab %s%s\n\n%s\n", command->name, command->ops->usage,
                                     command->summary);
    if (status == TT_OK) status = tt_wrap_append(text, tt_str_text(&head), &wrap);
    tt_str_deinit(&head);
    if (status != TT_OK || count == 0) return status;
    return tt_settings_help(sections, count, columns, text);
}

tt_status tt_help_print(struct tt_cli *cli, const struct tt_command *command)
{
    struct tt_str text = {0};
    tt_status status = command == NULL
                           ? write_program_help(&text)
                           : write_command_help(&text, command, tt_report_columns(cli->report->out));
    if (status == TT_OK) status = tt_report_print(cli->report, tt_str_text(&text));
    tt_str_deinit(&text);
    return status;
}

/* Writes the sections of `command` that `trimtab train` does not have: the reference lists shared sections once. */
static tt_status write_own_sections(struct tt_str *text, const char *name)
{
    struct tt_setting_section sections[TT_COMMAND_SECTIONS_MAX], train[TT_COMMAND_SECTIONS_MAX],
        own[TT_COMMAND_SECTIONS_MAX];
    size_t count = tt_command_sections(tt_command_find(name), sections),
           train_count = tt_command_sections(tt_command_find("train"), train), own_count = 0;
    for (size_t i = 0; i < count; i++) {
        bool shared = false;
        for (size_t j = 0; j < train_count; j++) shared |= sections[i].rows == train[j].rows;
        if (!shared) own[own_count++] = sections[i];
    }
    TT_TRY(tt_str_printf(text, "\n# trimtab %s\n", name));
    const char *between = "\nBesides the keys below it accepts those of: ", *last = "";
    for (size_t j = 0; j < train_count; j++) {
        for (size_t i = 0; i < count; i++) {
            if (sections[i].rows != train[j].rows || strcmp(train[j].title, last) == 0) continue;
            TT_TRY(tt_str_printf(text, "%s%s", between, train[j].title));
            between = "; ";
            last = train[j].title;
        }
    }
    if (own_count < count) TT_TRY(tt_str_append_text(text, ".\n"));
    return tt_settings_docs(own, own_count, text);
}

static tt_status write_reference(struct tt_str *text)
{
    struct tt_setting_section sections[TT_COMMAND_SECTIONS_MAX];
    TT_TRY(tt_str_append_text(
        text,
        "<!-- Generated: trimtab help --markdown > docs/settings.md -->\n\n# Settings\n\n"
        "Keys are set in a YAML file (`--config sft.yaml`) or by flags (`--learning_rate 2e-4`); flags win.\n"
        "Two keys that contradict each other (`use_cpu: true`, `device: cuda`) are an error within one "
        "source;\n"
        "of two sources the nearer one wins: flags, then the last file.\n"
        "`--key=value` and `--key value` are the same. Dashes in names are read as underscores. `--no_key` "
        "turns\n"
        "a boolean off. Keys with lists accept several words. `null` means \"not given\", and so does "
        "`none`\n"
        "unless it is a value of the key itself (`bias: none`).\n"
        "An unknown key is an error that names the nearest one.\n\n# trimtab train\n"));
    size_t count = tt_command_sections(tt_command_find("train"), sections);
    TT_TRY(tt_settings_docs(sections, count, text));
    for (const struct tt_command *command = tt_commands; command->name != NULL; command++) {
        struct tt_setting_section own[TT_COMMAND_SECTIONS_MAX];
        if (strcmp(command->name, "train") == 0 || tt_command_sections(command, own) == 0) continue;
        TT_TRY(write_own_sections(text, command->name));
    }
    return TT_OK;
}

static tt_status write_man_program(struct tt_str *text)
{
    return tt_man_page(text, NULL);
}

static const struct {
    const char *flag;
    tt_status (*write)(struct tt_str *text);
} texts[] = {
    {"--markdown", write_reference},
    {"--man", write_man_program},
    {"--bash", tt_completion_bash},
    {"--zsh", tt_completion_zsh},
};

static tt_status print_text(struct tt_cli *cli, tt_status written, struct tt_str *text)
{
    if (written == TT_OK) written = tt_report_print(cli->report, tt_str_text(text));
    tt_str_deinit(text);
    return written;
}

static tt_status run(struct tt_cli *cli, const struct tt_command_call *call)
{
    int argc = call->argc;
    char *const *argv = call->argv;
    struct tt_str text = {0};
    if (argc == 0) return tt_help_print(cli, NULL);
    for (size_t i = 0; argc == 1 && i < sizeof texts / sizeof *texts; i++)
        if (strcmp(argv[0], texts[i].flag) == 0) return print_text(cli, texts[i].write(&text), &text);
    bool is_page = argc == 2 && strcmp(argv[0], "--man") == 0;
    const char *name = argv[is_page];
    const struct tt_command *command = tt_command_find(name);
    if (command == NULL || (argc > 1 && !is_page)) {
        tt_status status =
            tt_fail(TT_ERR_USAGE, "help takes one command, not '%.60s'", command == NULL ? name : argv[1]);
        tt_hint("trimtab --help lists the commands");
        return status;
    }
    return is_page ? print_text(cli, tt_man_page(&text, command), &text) : tt_help_print(cli, command);
}

const struct tt_command_ops tt_cmd_help = {
    .usage = " [COMMAND] | --markdown | --man [COMMAND] | --bash | --zsh",
    .run = run,
};
