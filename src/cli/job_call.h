/* Settings shared by the commands that run a job: accelerate's file and --print_config. */
#ifndef TT_CLI_JOB_CALL_H
#define TT_CLI_JOB_CALL_H

#include "cli/commands.h"
#include "job/resolve.h"

enum tt_log_format { TT_LOG_FORMAT_TEXT, TT_LOG_FORMAT_JSON };

struct tt_job_call {
    const char *config_file;
    bool print_config;
    int log_format; /* enum tt_log_format */
};
extern const struct tt_setting tt_job_call_settings[]; /* over struct tt_job_call */

/* Fills `sections` [TT_COMMAND_SECTIONS_MAX]: those of struct tt_job_call at `call_offset` of the command's struct,
 * `own` (rows of the command; NULL: none) and those of the kind of job, whose specification must be the first member of
 * the command's struct. Returns the number of sections. */
size_t tt_job_call_sections(enum tt_job_kind kind, const struct tt_setting *own, size_t call_offset,
                            struct tt_setting_section *sections);
/* Call after the flags and the files of --config are read: reads accelerate's file, if one is given. */
TT_MUST_USE tt_status tt_job_call_read(const struct tt_job_call *call, struct tt_settings *settings);
/* Prints the resolved settings as YAML. */
TT_MUST_USE tt_status tt_job_call_print(struct tt_cli *cli, const struct tt_settings *settings);

#endif
