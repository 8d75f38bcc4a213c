/* Plans of cuDNN on disk, in trimtab's folder of the user's caches: the next process on such a GPU does not compile
 * them again. */
#ifndef TT_BACKEND_CUDA_CUDNN_STORE_H
#define TT_BACKEND_CUDA_CUDNN_STORE_H

#include "backend/cuda/cudnn_graph.h"

/* `kind` begins the file's name; `name` is everything that the plan depends on, as text. Returns whether the plan was
 * there. */
bool tt_cudnn_store_read(const struct tt_cudnn *cudnn, const char *kind, const char *name,
                         struct tt_cudnn_plan *plan);
/* Whether a whole file is there; cuDNN has not looked at it. */
bool tt_cudnn_store_has(const char *kind, const char *name);
/* A plan that cannot be stored is not an error. Files are replaced as wholes: any number of processes may write. */
void tt_cudnn_store_write(const char *kind, const char *name, const struct tt_cudnn_plan *plan);
void tt_cudnn_store_keep(const char *kind, const char *name, const char *json, size_t bytes); /* its JSON */

#endif
