/* The members of a tt_job. Internal to src/api; the manual is include/trimtab.h. */
#ifndef TT_API_JOB_H
#define TT_API_JOB_H

#include "base/thread.h"
#include "config/settings.h"
#include "infer/generator.h"
#include "job/spec.h"
#include "trimtab.h"

enum { TT_JOB_SECTIONS_MAX = 48 };

/* Filled by the settings. */
struct tt_job_target {
    struct tt_job_spec config; /* must be first: the offsets of its settings apply here */
    struct tt_generate_config generate;
    bool exact_match;
    int64_t max_prompt_tokens; /* 0: the model's positions minus max_new_tokens, at most 1024 */
};

struct tt_job {
    struct tt_setting_section sections[TT_JOB_SECTIONS_MAX]; /* borrowed by `settings`, as is `target` */
    struct tt_job_target target;
    struct tt_settings *settings;
    bool resolved;       /* the settings cannot change any more */
    bool train_resolved; /* tt_train_resolve was called */
    struct tt_cancel cancel;
    struct tt_str yaml; /* lent by tt_job_describe */
};

#endif
