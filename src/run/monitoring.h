/* The view that others have of a training while it runs (monitor/): opens the endpoints of this process, and translates
 * the figures of the loop. */
#ifndef TT_RUN_MONITORING_H
#define TT_RUN_MONITORING_H

#include "engine/phases.h"
#include "launch/world.h"
#include "monitor/dashboard.h"
#include "monitor/endpoints.h"
#include "run/run.h"

/* A zeroed struct is empty. */
struct tt_monitoring {
    const struct tt_monitor_spec *spec;
    struct tt_live *live;           /* NULL: nobody may watch */
    struct tt_endpoints *endpoints; /* NULL: not yet */
    struct tt_dashboard *dashboard; /* on rank 0; NULL: none */
};

/* Opens the endpoints before the ranks meet where the number of this process on its machine is known. */
TT_MUST_USE tt_status tt_monitoring_open(const struct tt_job_spec *job, struct tt_monitoring *monitoring);
/* The ranks have met: opens the endpoints where they are not. `world` is lent until the end. */
TT_MUST_USE tt_status tt_monitoring_attach(struct tt_monitoring *monitoring, const struct tt_run_job *job,
                                           const struct tt_world *world);
void tt_monitoring_close(struct tt_monitoring *monitoring);

/* Called before the first step, on rank 0. `tokens`: of the earlier part of a resumed run. */
void tt_monitoring_start(const struct tt_run *run, int64_t tokens);
/* A step of a rank. `live` may be NULL. */
void tt_monitoring_rank_step(struct tt_live *live, const struct tt_rank *rank,
                             const struct tt_phases *phases);

#endif
