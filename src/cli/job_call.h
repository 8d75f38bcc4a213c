/* What the commands that run a job share: accelerate's file and --print_config. */
#ifndef TT_CLI_JOB_CALL_H
#define TT_CLI_JOB_CALL_H

#include "cli/commands.h"
#include "job/resolve.h"

struct tt_job_call {
    const char *config_file;
    bool print_config;
};
extern const struct tt_setting tt_job_call_settings[]; /* over struct tt_job_call */

/* Sections of a command: those of the call, `own` (rows of the command; NULL: none) and those of the kind of job. They
 * lie over the command's struct, which begins with the kind's. Returns how many. */
size_t tt_job_call_sections(enum tt_job_kind kind, const struct tt_setting *own, size_t call_offset,
                            struct tt_setting_section *sections);
/* After the flags and the files of --config: reads accelerate's file, when one is named. */
TT_MUST_USE tt_status tt_job_call_read(const struct tt_job_call *call, struct tt_settings *settings);
/* The resolved settings on standard output. */
TT_MUST_USE tt_status tt_job_call_print(struct tt_cli *cli, const struct tt_settings *settings);

#endif
