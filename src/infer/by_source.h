/* Loss and accuracy of an evaluation for each source of a mixture, for objectives whose rows stand alone. The losses of
 * rows are copied to the host after each pass; the sums of the evaluation itself do not change. */
#ifndef TT_INFER_BY_SOURCE_H
#define TT_INFER_BY_SOURCE_H

#include "engine/rank.h"

struct tt_source_figures {
    int64_t samples, tokens; /* supervised tokens */
    double loss, accuracy;   /* NaN without a token */
};

/* A zeroed struct is empty: it has no sources, and nothing is counted. */
struct tt_by_source {
    const struct tt_dataset *dataset; /* lent */
    size_t count;
    struct tt_source_figures *list; /* [count], after the evaluation */
    double *sums;                   /* [3 * count]: loss, right answers, tokens */
    float *loss_N;
    int32_t *correct_N;
    size_t row_capacity;
};

/* Stays empty where the objective compares rows, or the data set has one source, which is not `named`. */
TT_MUST_USE tt_status tt_by_source_init(struct tt_by_source *by_source, const struct tt_dataset *dataset,
                                        const struct tt_objective *objective, bool named);
void tt_by_source_deinit(struct tt_by_source *by_source);
/* Called by tt_evaluate: at its start; after each forward pass, which it waits for; at its end, collective. */
void tt_by_source_clear(struct tt_by_source *by_source);
TT_MUST_USE tt_status tt_by_source_add(struct tt_by_source *by_source, struct tt_rank *rank,
                                       const struct tt_batch *batch, const struct tt_pass *pass);
TT_MUST_USE tt_status tt_by_source_finish(struct tt_by_source *by_source, struct tt_comm *world);

#endif
