#include "cli/completion.h"

#include <string.h>

#include "cli/commands.h"

/* Settings with an effect; the rest is accepted for the sake of other libraries' files. */
static bool is_offered(const struct tt_setting *row)
{
    return row->unneeded == NULL && (row->offset != TT_SETTING_NO_FIELD || row->spread != NULL);
}

static bool is_switch(const struct tt_setting *row)
{
    return row->type == TT_SETTING_BOOL || row->type == TT_SETTING_TRISTATE;
}

/* The words of a row's value, separated by blanks; NULL: any. */
static const char *words_of(const struct tt_setting *row)
{
    return row->choices != NULL ? row->choices : is_switch(row) ? "true false" : NULL;
}

static tt_status append_flags(struct tt_str *text, const struct tt_command *command)
{
    struct tt_setting_section sections[TT_COMMAND_SECTIONS_MAX];
    size_t count = tt_command_sections(command, sections);
    TT_TRY(tt_str_printf(text, "    %s) words=\"--help%s", command->name, count > 0 ? " --config" : ""));
    for (size_t i = 0; i < count; i++)
        for (const struct tt_setting *row = sections[i].rows; row->name != NULL; row++)
            if (is_offered(row) && !tt_setting_repeats(sections, i, row))
                TT_TRY(tt_str_printf(text, " --%s", row->name));
    return tt_str_append_text(text, "\" ;;\n");
}

static tt_status append_values(struct tt_str *text, const struct tt_command *command)
{
    struct tt_setting_section sections[TT_COMMAND_SECTIONS_MAX];
    size_t count = tt_command_sections(command, sections);
    for (size_t i = 0; i < count; i++)
        for (const struct tt_setting *row = sections[i].rows; row->name != NULL; row++) {
            const char *words = words_of(row);
            if (!is_offered(row) || words == NULL || tt_setting_repeats(sections, i, row)) continue;
            TT_TRY(
                tt_str_printf(text, "    \"%s --%s\") words=\"%s\" ;;\n", command->name, row->name, words));
        }
    return TT_OK;
}

tt_status tt_completion_bash(struct tt_str *text)
{
    TT_TRY(tt_str_append_text(
        text, "# Completion of trimtab for bash; generated: trimtab help --bash\n_trimtab() {\n"
              "    local current=${COMP_WORDS[COMP_CWORD]} words=\n    COMPREPLY=()\n"
              "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n        words=\""));
    for (const struct tt_command *command = tt_commands; command->name != NULL; command++)
        TT_TRY(tt_str_printf(text, "%s%s", command == tt_commands ? "" : " ", command->name));
    TT_TRY(tt_str_append_text(text, " --help --version\"\n    elif [[ $current == -* ]]; then\n"
                                    "    case ${COMP_WORDS[1]} in\n"));
    for (const struct tt_command *command = tt_commands; command->name != NULL; command++)
        TT_TRY(append_flags(text, command));
    TT_TRY(tt_str_append_text(
        text, "    esac\n    else\n    case \"${COMP_WORDS[1]} ${COMP_WORDS[COMP_CWORD-1]}\" in\n"));
    for (const struct tt_command *command = tt_commands; command->name != NULL; command++)
        TT_TRY(append_values(text, command));
    /* no words: names of files, by the option `default` */
    return tt_str_append_text(text, "    esac\n    fi\n"
                                    "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n"
                                    "}\ncomplete -o default -F _trimtab trimtab\n");
}

/* Appends the first sentence of `help` inside the quotes and brackets of a specification of zsh's _arguments. */
static tt_status append_sentence(struct tt_str *text, const char *help)
{
    const char *end = strstr(help, ". ");
    size_t bytes = end != NULL ? (size_t)(end - help) : strlen(help);
    if (end == NULL && bytes > 0 && help[bytes - 1] == '.') bytes--;
    for (size_t i = 0; i < bytes; i++) {
        if (help[i] == '\'') {
            TT_TRY(tt_str_append_text(text, "'\\''"));
            continue;
        }
        if (strchr("[]:\\", help[i]) != NULL) TT_TRY(tt_str_append_char(text, '\\'));
        TT_TRY(tt_str_append_char(text, help[i]));
    }
    return TT_OK;
}

/* One specification: '--device=[where it runs]:value:(auto cpu cuda)'. */
static tt_status append_specification(struct tt_str *text, const struct tt_setting *row)
{
    bool is_number =
        row->type == TT_SETTING_INT || row->type == TT_SETTING_DOUBLE || row->type == TT_SETTING_BYTES;
    const char *words = words_of(row);
    TT_TRY(tt_str_printf(text, " \\\n            '--%s=[", row->name));
    TT_TRY(append_sentence(text, row->help != NULL ? row->help : row->name));
    TT_TRY(tt_str_append_text(text, is_switch(row) ? "]::value:" : "]:value:"));
    if (words != NULL) TT_TRY(tt_str_printf(text, "(%s)", words));
    if (words == NULL && !is_number) TT_TRY(tt_str_append_text(text, "_files"));
    return tt_str_append_text(text, "'");
}

static tt_status append_arguments(struct tt_str *text, const struct tt_command *command)
{
    struct tt_setting_section sections[TT_COMMAND_SECTIONS_MAX];
    size_t count = tt_command_sections(command, sections);
    TT_TRY(tt_str_printf(text,
                         "    %s)\n        _arguments \\\n            '--help[the settings of the command]'",
                         command->name));
    if (count > 0)
        TT_TRY(tt_str_append_text(text, " \\\n            '*--config=[YAML file of settings]:file:_files'"));
    for (size_t i = 0; i < count; i++)
        for (const struct tt_setting *row = sections[i].rows; row->name != NULL; row++)
            if (is_offered(row) && !tt_setting_repeats(sections, i, row))
                TT_TRY(append_specification(text, row));
    return tt_str_append_text(text, " \\\n            '*:file:_files'\n        ;;\n");
}

tt_status tt_completion_zsh(struct tt_str *text)
{
    TT_TRY(tt_str_append_text(
        text, "#compdef trimtab\n# Completion of trimtab for zsh; generated: trimtab help --zsh\n"
              "local -a commands\n"
              "if (( CURRENT == 2 )); then\n    commands=("));
    for (const struct tt_command *command = tt_commands; command->name != NULL; command++) {
        TT_TRY(tt_str_printf(text, "\n        '%s:", command->name));
        TT_TRY(append_sentence(text, command->summary));
        TT_TRY(tt_str_append_char(text, '\''));
    }
    TT_TRY(tt_str_append_text(text, "\n        '--help:the commands'\n        '--version:the version')\n"
                                    "    _describe command commands\n    return\nfi\n"
                                    "shift words\n(( CURRENT-- ))\ncase $words[1] in\n"));
    for (const struct tt_command *command = tt_commands; command->name != NULL; command++)
        TT_TRY(append_arguments(text, command));
    return tt_str_append_text(text, "esac\n");
}
