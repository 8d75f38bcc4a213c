/* The reference of a training that computes it once, before its first step: log p of every label of the training and
 * evaluation rows becomes columns of these data sets. It is kept in a file, and read from there by later runs and by
 * those that go on; or the rows bring it. */
#ifndef TT_RUN_REFERENCE_H
#define TT_RUN_REFERENCE_H

#include "engine/rank.h"
#include "job/inputs.h"
#include "launch/fingerprint.h"
#include "run/run_job.h"

enum { TT_REFERENCE_SETS = 2 };

/* The rows of one data set. */
struct tt_reference_set {
    const char *what;           /* "training" */
    struct tt_dataset *dataset; /* lent */
    struct tt_sampler *sampler; /* owned: its rows once, in their order */
    struct tt_str path;         /* owned: of the file */
    uint64_t key;
    int64_t samples, most;     /* of a step; tokens of a sequence */
    float *logps, *mismatched; /* lent: the columns; NULL: none */
    bool given;                /* the rows bring it */
    bool found;                /* the file had it; in the process of rank 0 */
};

/* A zeroed struct is empty: there is nothing to compute. */
struct tt_run_reference {
    struct tt_reference_set sets[TT_REFERENCE_SETS];
    int count;
    struct tt_batch_limits limits; /* of the batches that compute it */
};

/* How its batches are made: as the data are ordered, by micro batches of `batch` units. */
struct tt_reference_order {
    const struct tt_objective *objective;
    const struct tt_data_config *rows;
    int64_t batch_size; /* precompute_ref_batch_size; 0: as each data set */
    int64_t train_batch, eval_batch, accumulation, max_length;
    int data_size;
    bool shares; /* prompts */
};
/* TT_ERR_DATA: rows bring it, and others do not. */
TT_MUST_USE tt_status tt_run_reference_order(const struct tt_reference_order *order,
                                             const struct tt_inputs *inputs,
                                             struct tt_run_reference *reference);
void tt_run_reference_deinit(struct tt_run_reference *reference);

/* All lent. */
struct tt_reference_config {
    const struct tt_run_job *job;
    const struct tt_inputs *inputs;
    const struct tt_fingerprint *fingerprint;
    const char *device; /* its kind */
    bool reads;         /* this is the process of rank 0, which has the files */
};
/* Makes the columns and reads the files. */
TT_MUST_USE tt_status tt_run_reference_open(const struct tt_reference_config *config,
                                            struct tt_run_reference *reference);

/* Calls of each rank; `leads`: it is the first rank of its process, which writes the columns. Collective. Gives all
 * processes what the files had; *missing: something is to be computed. */
TT_MUST_USE tt_status tt_run_reference_share(struct tt_run_reference *reference, struct tt_comm *comm,
                                             bool leads, bool *missing);
/* Computes what is missing with the values that the rank has, and keeps it. */
TT_MUST_USE tt_status tt_run_reference_compute(struct tt_run_reference *reference,
                                               const struct tt_run_job *job, struct tt_rank *rank,
                                               bool leads);

#endif
