/* A plan without a run: from settings and the config.json of a model, for a device that need not be there. No
 * weights, tokenizer or data are read: every row is taken to have as many tokens as a row may have, all of
 * them learned. */
#ifndef TT_RUN_PLAN_OFFLINE_H
#define TT_RUN_PLAN_OFFLINE_H

#include "engine/plan.h"

struct tt_plan_options {
    const char *config_json;  /* a config.json; NULL: that of the folder model_name_or_path */
    int64_t sequence_length;  /* tokens of a row; 0: max_length */
    const char *device;       /* "auto", "cpu", "cuda", or a chip such as "h200" */
    size_t network_bandwidth; /* bytes a second that a rank receives from other machines; 0: by the chip */
};

TT_MUST_USE tt_status tt_plan_offline(const struct tt_train_config *config,
                                      const struct tt_plan_options *options, struct tt_plan *plan);

#endif
