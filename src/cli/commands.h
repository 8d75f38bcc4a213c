/* The commands. Each is one file cmd_<name>.c, which defines tt_cmd_<name>, and one line in commands.def. */
#ifndef TT_CLI_COMMANDS_H
#define TT_CLI_COMMANDS_H

#include "base/thread.h"
#include "cli/report.h"
#include "config/settings.h"

enum { TT_COMMAND_SECTIONS_MAX = 32 };

/* What every command gets. */
struct tt_cli {
    struct tt_report *report;
    struct tt_cancel *cancel;
};

/* One call of a command. */
struct tt_command_call {
    int argc; /* words before the settings; of a command without settings all words */
    char *const *argv;
    void *target; /* what the settings filled; NULL without settings */
    struct tt_settings *settings;
};

struct tt_command_ops {
    const char *usage; /* the words after "trimtab NAME" */
    /* Fills `sections` [TT_COMMAND_SECTIONS_MAX] with the settings of the command and returns how many there are. NULL:
     * it has none. They lie over a struct of `target_bytes`, which is zeroed. */
    size_t (*sections)(struct tt_setting_section *sections);
    size_t target_bytes;
    /* Checks the words before the settings: *count gets how many there are. NULL: settings come at once. */
    tt_status (*take_words)(int argc, char *const *argv, int *count);
    /* After the flags were read. NULL: tt_settings_check. */
    tt_status (*resolve)(void *target, struct tt_settings *settings);
    tt_status (*run)(struct tt_cli *cli, const struct tt_command_call *call);
};

struct tt_command {
    const char *name, *summary;
    const struct tt_command_ops *ops;
};

#define COMMAND(name, summary) extern const struct tt_command_ops tt_cmd_##name;
#include "cli/commands.def"
#undef COMMAND

/* NULL when there is none of that name. */
const struct tt_command *tt_command_find(const char *name);
/* Its ops' sections, or none. */
size_t tt_command_sections(const struct tt_command *command, struct tt_setting_section *sections);
/* In the order of commands.def, ended by one without name. */
extern const struct tt_command tt_commands[];

/* The program: finds the command, runs it, reports its error; returns the exit code. */
int tt_cli_main(int argc, char *const *argv, FILE *out, FILE *err);

/* Prints the help of one command, or of the program when NULL. */
TT_MUST_USE tt_status tt_help_print(struct tt_cli *cli, const struct tt_command *command);

#endif
