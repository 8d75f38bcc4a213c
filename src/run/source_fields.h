/* The figures of a mixture's sources as fields of a log row: eval_NAME_loss, as transformers names those of several
 * evaluation sets, eval_NAME_mean_token_accuracy and eval_NAME_tokens. Internal to src/run. */
#ifndef TT_RUN_SOURCE_FIELDS_H
#define TT_RUN_SOURCE_FIELDS_H

#include "base/str.h"
#include "data/sources.h"
#include "infer/by_source.h"
#include "trimtab.h"

/* A zeroed struct is empty. */
struct tt_source_fields {
    struct tt_log_field *fields; /* [count] */
    struct tt_str *names;        /* [count], owned */
    int count;
};

/* The fields of `first`, then those of the sources. `sources`: those of the data set. */
TT_MUST_USE tt_status tt_source_fields_init(struct tt_source_fields *all, const struct tt_log_field *first,
                                            int first_count, const struct tt_sources *sources,
                                            const struct tt_by_source *by_source);
void tt_source_fields_deinit(struct tt_source_fields *all);

#endif
