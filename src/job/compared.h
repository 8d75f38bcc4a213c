/* The settings of a job that must be the same in all processes of its run. */
#ifndef TT_JOB_COMPARED_H
#define TT_JOB_COMPARED_H

#include "job/settings.h"

/* Appends the line "name: value" of one setting. */
TT_MUST_USE tt_status tt_job_write_setting(const struct tt_setting *row, const void *value,
                                           struct tt_str *text);
/* Appends one "name: value" a line, without the settings that change what the bits of `without` say (`changes` in
 * config/settings.h). `spec` is the struct of the kind. */
TT_MUST_USE tt_status tt_job_compared(enum tt_job_kind kind, const void *spec, unsigned without,
                                      struct tt_str *text);

#endif
