#include "cli/man.h"

#include <ctype.h>
#include <string.h>

#include "base/number.h"
#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "config/man.h"
#include "trimtab.h"

/* A name and its explanation. */
struct entry {
    const char *name, *text; /* no name: the end of the table */
};

/* Variables that stand for no setting. Those that do are in the rows of settings. */
static const struct entry variables[] = {
    {"TRIMTAB_CUDA_PLUGIN",
     "Path of libtrimtab_cuda.so, the plugin for GPUs. Not given: it is searched beside the "
     "program, then in ../lib/trimtab and the like."},
    {"TRIMTAB_JOB_SECRET", "Secret that the processes of a run share."},
    {"TRIMTAB_JOB_SECRET_FILE", "File with that secret."},
    {"TRIMTAB_TERMINATION_LOG", "File for the text of an error in a pod. Not given: /dev/termination-log."},
    {"HF_TOKEN", "Token for private and gated repositories of the hub; HF_TOKEN_PATH: a file with it."},
    {"HF_ENDPOINT", "Address of another hub than https://huggingface.co."},
    {"HF_HUB_OFFLINE", "1: the hub is never asked."},
    {"HF_HUB_CACHE", "Folder of the hub's cache. Not given: hub in HF_HOME, or ~/.cache/huggingface/hub."},
    {"TMPDIR", "Folder for temporary files. Not given: /tmp."},
    {"NO_COLOR", "No colours, whatever the terminal supports."},
    {NULL, NULL},
};

static tt_status append_entry(struct tt_str *roff, const char *name, const char *text)
{
    TT_TRY(tt_str_append_text(roff, ".TP\n\\fB"));
    TT_TRY(tt_man_append(roff, name));
    TT_TRY(tt_str_append_text(roff, "\\fR\n"));
    TT_TRY(tt_man_append(roff, text));
    return tt_str_append_char(roff, '\n');
}

static tt_status append_head(struct tt_str *roff, const char *name, const char *summary)
{
    TT_TRY(tt_str_append_text(roff, ".\\\" Generated: trimtab help --man\n.TH "));
    for (const char *at = name; *at != 0; at++)
        TT_TRY(*at == '-' ? tt_str_append_text(roff, "\\-")
                          : tt_str_append_char(roff, (char)toupper((unsigned char)*at)));
    TT_TRY(tt_str_append_text(roff, " 1 \"\" \"trimtab " TT_VERSION "\" \"User Commands\"\n.SH NAME\n"));
    TT_TRY(tt_man_append(roff, name));
    TT_TRY(tt_str_append_text(roff, " \\- "));
    TT_TRY(tt_man_append(roff, summary));
    return tt_str_append_char(roff, '\n');
}

static tt_status append_synopsis(struct tt_str *roff, const char *name, const char *usage)
{
    TT_TRY(tt_str_append_text(roff, ".SH SYNOPSIS\n.nh\n.ad l\n\\fBtrimtab"));
    TT_TRY(name != NULL ? tt_str_printf(roff, " %s\\fR", name) : tt_str_append_text(roff, "\\fR"));
    TT_TRY(tt_man_append(roff, usage));
    return tt_str_append_text(roff, "\n.ad\n.hy\n");
}

static tt_status append_exit_codes(struct tt_str *roff)
{
    TT_TRY(tt_str_append_text(roff, ".SH EXIT STATUS\n"));
    for (const struct tt_exit_meaning *meaning = tt_exit_meanings; meaning->text != NULL; meaning++)
        TT_TRY(tt_str_printf(roff, ".TP\n\\fB%d\\fR\n%s\n", (int)meaning->code, meaning->text));
    return TT_OK;
}

static tt_status append_program(struct tt_str *roff)
{
    TT_TRY(append_head(roff, "trimtab", "fine-tunes large language models with sharded LoRA"));
    TT_TRY(append_synopsis(roff, NULL, " COMMAND [--config FILE.yaml] [--key value ...]"));
    TT_TRY(tt_str_append_text(
        roff, ".SH DESCRIPTION\n"
              "Each command has a page of its own, and \\fBtrimtab\\fR \\fICOMMAND\\fR \\fB\\-\\-help\\fR "
              "lists its settings.\n"
              "Names, defaults and meaning are those of TRL\\(aqs SFTConfig, transformers\\(aq "
              "TrainingArguments and PEFT\\(aqs LoraConfig, for all settings that exist there.\n"
              ".SH COMMANDS\n"));
    for (const struct tt_command *command = tt_commands; command->name != NULL; command++)
        TT_TRY(append_entry(roff, command->name, command->summary));
    TT_TRY(append_exit_codes(roff));
    TT_TRY(tt_str_append_text(roff, ".SH ENVIRONMENT\n"));
    for (const struct entry *variable = variables; variable->name != NULL; variable++)
        TT_TRY(append_entry(roff, variable->name, variable->text));
    TT_TRY(tt_str_append_text(roff, ".SH SEE ALSO\n"));
    for (const struct tt_command *command = tt_commands; command->name != NULL; command++)
        TT_TRY(tt_str_printf(roff, "%s\\fBtrimtab\\-%s\\fR(1)", command == tt_commands ? "" : ",\n",
                             command->name));
    return tt_str_append_char(roff, '\n');
}

static tt_status append_settings(struct tt_str *roff, const struct tt_command *command)
{
    struct tt_setting_section sections[TT_COMMAND_SECTIONS_MAX];
    size_t count = tt_command_sections(command, sections);
    if (count == 0) return TT_OK;
    TT_TRY(tt_str_append_text(
        roff, ".SH OPTIONS\n"
              "Settings are flags, or keys of YAML files; a flag overrides a file, and a later file an "
              "earlier one.\n"
              "Dashes in names are read as underscores; \\fB\\-\\-no_\\fR\\fIkey\\fR turns a boolean off.\n"
              "Defaults are in brackets.\n"
              ".TP\n\\fB\\-\\-config\\fR \\fIFILE\\fR\nYAML file of settings.\n"));
    return tt_man_settings(sections, count, roff);
}

tt_status tt_man_page(struct tt_str *roff, const struct tt_command *command)
{
    char name[64], usage[512];
    if (command == NULL) return append_program(roff);
    const char *details = strstr(command->ops->usage, "\n\n");
    size_t bytes = details != NULL ? (size_t)(details - command->ops->usage) : strlen(command->ops->usage);
    tt_snprintf(usage, sizeof usage, "%.*s", (int)bytes, command->ops->usage);
    tt_snprintf(name, sizeof name, "trimtab-%s", command->name);
    TT_TRY(append_head(roff, name, command->summary));
    TT_TRY(append_synopsis(roff, command->name, usage));
    if (details != NULL) {
        TT_TRY(tt_str_append_text(roff, ".SH DESCRIPTION\n"));
        TT_TRY(tt_man_append(roff, details + 2));
        TT_TRY(tt_str_append_char(roff, '\n'));
    }
    TT_TRY(append_settings(roff, command));
    TT_TRY(append_exit_codes(roff));
    return tt_str_append_text(roff, ".SH SEE ALSO\n\\fBtrimtab\\fR(1)\n");
}
