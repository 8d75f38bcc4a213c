/* The workspace of a rank: one buffer, allocated as a stack. The forward pass pushes its kept results block by block,
 * and the backward pass pops them in reverse order; scratch is popped when its user returns. The size comes from a run
 * on the plan device, where the stack is unlimited and its high-water mark is recorded (and counted as activations).
 * Every piece is rounded up to 256 bytes.
 */
#ifndef TT_BACKEND_WORKSPACE_H
#define TT_BACKEND_WORKSPACE_H

#include "backend/device.h"
#include "tensor/tensor.h"

struct tt_workspace;

/* `bytes` is ignored on the plan device. */
TT_MUST_USE tt_status tt_workspace_create(struct tt_device *device, size_t bytes, struct tt_workspace **out);
void tt_workspace_destroy(struct tt_workspace *workspace);

/* Contiguous, 256-byte aligned, not initialised. `what` is its name in messages. A plan that was too small is
 * TT_ERR_INTERNAL, because the plan uses the allocator's own arithmetic. */
TT_MUST_USE tt_status tt_workspace_1d(struct tt_workspace *workspace, const char *what, tt_dtype dtype,
                                      int64_t d0, tt_tensor *out);
TT_MUST_USE tt_status tt_workspace_2d(struct tt_workspace *workspace, const char *what, tt_dtype dtype,
                                      int64_t d0, int64_t d1, tt_tensor *out);
/* u8 [bytes]: all that no piece has, to be used before the next piece is pushed; empty on the plan device. */
tt_tensor tt_workspace_rest(const struct tt_workspace *workspace);
size_t tt_workspace_mark(const struct tt_workspace *workspace);
void tt_workspace_release(struct tt_workspace *workspace, size_t mark); /* pops all pieces after `mark` */
size_t tt_workspace_peak(const struct tt_workspace *workspace);         /* bytes */
/* Bytes of the largest piece named `what` on the plan device, for tables; 0 if there was none. */
size_t tt_workspace_largest(const struct tt_workspace *workspace, const char *what);

#endif
