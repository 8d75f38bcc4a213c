/* The files and folders that the settings of a training name: the rows with a `path` (config/settings.h), and the
 * sources of a mixture. */
#ifndef TT_JOB_PATHS_H
#define TT_JOB_PATHS_H

#include "config/settings.h"
#include "job/spec.h"

/* A path that is given, of the setting `row`. The text is lent until the function returns. */
typedef tt_status tt_job_path_visit(void *context, const struct tt_setting *row, const char *path);
/* Visits paths in the order of the settings; transient ones, which are of one call on this machine, are left out. Stops
 * at the first error. TT_ERR_USAGE for a mixture that cannot be read. */
TT_MUST_USE tt_status tt_job_paths_visit(const struct tt_job_spec *job, tt_job_path_visit *visit,
                                         void *context);

#endif
