#include "cli/completion.h"

#include <string.h>

#include "cli/commands.h"

/* Settings with an effect; the rest is accepted for the sake of other libraries' files. */
static bool is_offered(const struct tt_setting *row)
{
    return row->unneeded == NULL && (row->offset != TT_SETTING_NO_FIELD || row->spread != NULL);
}

static tt_status append_flags(struct tt_str *text, const struct tt_command *command)
{
    struct tt_setting_section sections[TT_COMMAND_SECTIONS_MAX];
    size_t count = tt_command_sections(command, sections);
    TT_TRY(tt_str_printf(text, "    %s) words=\"--help%s", command->name, count > 0 ? " --config" : ""));
    for (size_t i = 0; i < count; i++)
        for (const struct tt_setting *row = sections[i].rows; row->name != NULL; row++)
            if (is_offered(row)) TT_TRY(tt_str_printf(text, " --%s", row->name));
    return tt_str_append_text(text, "\" ;;\n");
}

static tt_status append_values(struct tt_str *text, const struct tt_command *command)
{
    struct tt_setting_section sections[TT_COMMAND_SECTIONS_MAX];
    size_t count = tt_command_sections(command, sections);
    for (size_t i = 0; i < count; i++)
        for (const struct tt_setting *row = sections[i].rows; row->name != NULL; row++) {
            bool is_switch = row->type == TT_SETTING_BOOL || row->type == TT_SETTING_TRISTATE;
            const char *words = row->choices != NULL ? row->choices : is_switch ? "true false" : NULL;
            if (!is_offered(row) || words == NULL) continue;
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
