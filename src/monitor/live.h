/* The figures of a training while it runs: the loop's threads write them once a step, the thread of an HTTP server
 * reads them. They are those of one process: each of its ranks has its own, and the process of rank 0 those of the
 * whole run. All functions that write take NULL: nobody watches. */
#ifndef TT_MONITOR_LIVE_H
#define TT_MONITOR_LIVE_H

#include <stdbool.h>
#include <stdint.h>
#include "base/str.h"

struct tt_live;

/* Where the time of a rank goes. On a device that queues its work the host cannot tell the parts of a pass apart: all
 * of it is TT_LIVE_COMPUTE. */
enum tt_live_phase {
    TT_LIVE_DATA,
    TT_LIVE_GATHER,
    TT_LIVE_COMPUTE,
    TT_LIVE_REDUCE,
    TT_LIVE_OPTIMIZER,
    TT_LIVE_SAVE,
    TT_LIVE_EVALUATE,
    TT_LIVE_PHASE_COUNT
};

enum { TT_LIVE_PURPOSES_MAX = 16 };

/* Called by the server's thread: when (tt_clock_seconds) a rank of this process last began a block. */
typedef double tt_live_last_beat(void *context);

struct tt_live_config {
    double frozen_seconds; /* a loop without a sign of life for longer is frozen */
    /* Names of the kinds of device memory; constants. */
    const char *purposes[TT_LIVE_PURPOSES_MAX];
    int purpose_count;
};

TT_MUST_USE tt_status tt_live_create(const struct tt_live_config *config, struct tt_live **out);
void tt_live_destroy(struct tt_live *live); /* takes NULL */

/* The ranks have met. `last_beat` may be NULL; it is called until tt_live_detach. */
struct tt_live_place {
    int first_rank, rank_count, world_size;
    tt_live_last_beat *last_beat;
    void *context;
};
TT_MUST_USE tt_status tt_live_attach(struct tt_live *live, const struct tt_live_place *place);
void tt_live_detach(struct tt_live *live);

/* The current activity of the loop; a constant. While it waits for something that may take long (`limited` false: a
 * save, the start) it is never frozen. */
void tt_live_activity(struct tt_live *live, const char *activity, bool limited);

/* A rank's state: seconds since its last call, and the bytes of its device by purpose, at their peak. */
struct tt_live_rank_step {
    double phases[TT_LIVE_PHASE_COUNT], rank_wait;
    double bytes[TT_LIVE_PURPOSES_MAX], peak_bytes, host_bytes;
};
void tt_live_rank_step(struct tt_live *live, int rank, const struct tt_live_rank_step *step);
/* Time besides steps. */
void tt_live_rank_seconds(struct tt_live *live, int rank, enum tt_live_phase phase, double seconds);

/* The run's state, on rank 0. */
struct tt_live_start {
    int64_t step, total_steps; /* step: the one to begin after */
    double tokens, planned_bytes, restarts;
    const char *unit; /* of `tokens`, here and in steps: "tokens", "images" */
};
void tt_live_start(struct tt_live *live, const struct tt_live_start *start);
struct tt_live_step {
    int64_t step;
    double seconds, tokens, flops; /* tokens, flops: of the run so far */
    double loss, learning_rate, grad_norm;
};
void tt_live_step(struct tt_live *live, const struct tt_live_step *step);
/* A metric of evaluations beside their loss: trimtab_eval_<name>. Its texts are lent until the end. */
struct tt_live_metric {
    const char *name, *help;
    double value; /* NaN: it has no sample */
};
/* `metric`: NULL: there is none. */
void tt_live_evaluation(struct tt_live *live, double loss, const struct tt_live_metric *metric);
void tt_live_save(struct tt_live *live, int64_t step, double seconds);

/* Appends all metrics. */
TT_MUST_USE tt_status tt_live_metrics(struct tt_live *live, bool open_metrics, struct tt_str *text);
/* False: the loop is frozen. `why`: one line. */
bool tt_live_is_healthy(struct tt_live *live, char *why, size_t why_bytes);
/* The ranks have met, and with `stepped` also done the first step of this process. */
bool tt_live_is_ready(struct tt_live *live, bool stepped, char *why, size_t why_bytes);

#endif
