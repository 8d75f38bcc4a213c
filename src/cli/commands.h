/* The commands. Each is one file cmd_<name>.c and one line in commands.def. */
#ifndef TT_CLI_COMMANDS_H
#define TT_CLI_COMMANDS_H

#include "base/thread.h"
#include "cli/report.h"
#include "config/settings.h"

enum { TT_COMMAND_SECTIONS_MAX = 16 };

/* What every command gets. */
struct tt_cli {
    struct tt_report *report;
    struct tt_cancel *cancel;
};

struct tt_command {
    const char *name, *summary;
    /* argv[0 .. argc-1] are the words after the command. */
    tt_status (*run)(struct tt_cli *cli, int argc, char *const *argv);
    /* Fills `sections` with the settings of the command and returns how many there are. */
    size_t (*sections)(struct tt_setting_section *sections); /* [TT_COMMAND_SECTIONS_MAX] */
    const char *usage;                                       /* the words after "trimtab NAME" */
};

#define COMMAND(name, summary)                                                                               \
    tt_status tt_cmd_##name(struct tt_cli *cli, int argc, char *const *argv);                                \
    size_t tt_cmd_##name##_sections(struct tt_setting_section *sections);                                    \
    extern const char tt_cmd_##name##_usage[];
#include "cli/commands.def"
#undef COMMAND

/* NULL when there is none of that name. */
const struct tt_command *tt_command_find(const char *name);
/* In the order of commands.def, ended by one without name. */
extern const struct tt_command tt_commands[];

/* The program: finds the command, runs it, reports its error; returns the exit code. */
int tt_cli_main(int argc, char *const *argv, FILE *out, FILE *err);

/* Prints the help of one command, or of the program when NULL. */
TT_MUST_USE tt_status tt_help_print(struct tt_cli *cli, const struct tt_command *command);

#endif
