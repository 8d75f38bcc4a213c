/* Plans of cuDNN on disk, in trimtab's folder of the user's caches: the next process on such a GPU does not compile
 * them again. */
#ifndef TT_BACKEND_CUDA_CUDNN_STORE_H
#define TT_BACKEND_CUDA_CUDNN_STORE_H

#include "backend/cuda/cudnn_graph.h"

/* `kind` begins the file's name; `name` is everything that the plan depends on, as text. Returns whether the plan was
 * there. */
bool tt_cudnn_store_read(const struct tt_cudnn *cudnn, const char *kind, const char *name,
                         struct tt_cudnn_plan *plan);
/* A plan that cannot be stored is not an error. */
void tt_cudnn_store_write(const char *kind, const char *name, const struct tt_cudnn_plan *plan);

#endif
