/* The commands. Each has a file cmd_<name>.c, which defines tt_cmd_<name>, and a line in commands.def. */
#ifndef TT_CLI_COMMANDS_H
#define TT_CLI_COMMANDS_H

#include "base/thread.h"
#include "cli/report.h"
#include "config/settings.h"

enum { TT_COMMAND_SECTIONS_MAX = 48 };

/* Passed to every command. */
struct tt_cli {
    struct tt_report *report; /* lent: output, messages and progress */
    struct tt_cancel *cancel; /* lent: stop requests of the signal handler */
};

/* One call of a command. */
struct tt_command_call {
    int argc; /* words before the settings; all words of a command without settings */
    char *const *argv;
    int flag_count; /* the flags, as given, after the words */
    char *const *flags;
    void *target;                 /* the command's struct, filled by the settings; NULL without settings */
    struct tt_settings *settings; /* NULL without settings */
};

struct tt_command_ops {
    const char *usage; /* help text after "usage: trimtab NAME" */
    /* Fills `sections` [TT_COMMAND_SECTIONS_MAX] with the settings of the command and returns their number. NULL: a
     * command without settings. Their offsets refer to a zeroed struct of `target_bytes`. */
    size_t (*sections)(struct tt_setting_section *sections);
    size_t target_bytes;
    /* Checks the words before the settings and stores their number in *count. NULL: there are no such words. */
    tt_status (*parse_words)(int argc, char *const *argv, int *count);
    /* Called after the flags are parsed; resolves and checks the target. NULL: tt_settings_check. */
    tt_status (*resolve)(void *target, struct tt_settings *settings);
    tt_status (*run)(struct tt_cli *cli, const struct tt_command_call *call);
};

struct tt_command {
    const char *name, *summary;
    const struct tt_command_ops *ops;
};

#define COMMAND(name, summary) extern const struct tt_command_ops tt_cmd_##name;
#define COMMAND_AS(file, name, summary) COMMAND(file, summary)
#include "cli/commands.def"
#undef COMMAND_AS
#undef COMMAND

/* NULL if there is no command of that name. An objective is the name of a training. */
const struct tt_command *tt_command_find(const char *name);
/* Calls the command's `sections`; 0 for a command without settings. */
size_t tt_command_sections(const struct tt_command *command, struct tt_setting_section *sections);
/* Commands in the order of commands.def; the last entry has no name. */
extern const struct tt_command tt_commands[];

/* The whole program: finds the command, runs it, reports its error. Returns the exit code. */
int tt_cli_main(int argc, char *const *argv, FILE *out, FILE *err);

/* Prints the help of one command; NULL: of the program. */
TT_MUST_USE tt_status tt_help_print(struct tt_cli *cli, const struct tt_command *command);

#endif
