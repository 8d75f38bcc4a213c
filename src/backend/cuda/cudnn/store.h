/* Plans of cuDNN on disk, in trimtab's folder of the user's caches: the next process on such a GPU does not compile
 * them again. */
#ifndef TT_BACKEND_CUDA_CUDNN_STORE_H
#define TT_BACKEND_CUDA_CUDNN_STORE_H

#include "backend/cuda/cudnn/graph.h"

/* How a plan is made. */
struct tt_cudnn_recipe {
    const char *kind; /* begins the name of its file */
    /* Adds the operations; errors stay in the graph. */
    void (*describe)(struct tt_cudnn_graph *graph, const void *shape);
    const void *shape;      /* borrowed */
    size_t workspace_limit; /* in bytes */
};

/* Builds the plan from its graph, as tt_cudnn_plan_build does; the caller deinits it. */
TT_MUST_USE tt_status tt_cudnn_recipe_build(const struct tt_cudnn_recipe *recipe,
                                            const struct tt_cudnn *cudnn, struct tt_cudnn_plan *plan);
/* Reads a stored plan; false where there is none, or it needs a larger workspace. `name` is everything that the plan
 * depends on, as text. The caller deinits it. */
bool tt_cudnn_store_read(const struct tt_cudnn_recipe *recipe, const struct tt_cudnn *cudnn, const char *name,
                         struct tt_cudnn_plan *plan);
/* Reads the plan, or builds and stores it. *stored: it was read. */
TT_MUST_USE tt_status tt_cudnn_store_obtain(const struct tt_cudnn_recipe *recipe,
                                            const struct tt_cudnn *cudnn, const char *name,
                                            struct tt_cudnn_plan *plan, bool *stored);
/* Whether a whole file is there; cuDNN has not looked at it. */
bool tt_cudnn_store_has(const char *kind, const char *name);
/* A plan that cannot be stored is not an error. Files are replaced as wholes: any number of processes may write. */
void tt_cudnn_store_write(const char *kind, const char *name, const struct tt_cudnn_plan *plan);
void tt_cudnn_store_keep(const char *kind, const char *name, const char *json, size_t bytes); /* its JSON */

#endif
