/* The workspace of a rank: one buffer handed out as a stack. What the forward pass keeps is pushed block by
 * block and popped in reverse order by the backward pass; scratch is popped when its user returns. Its size
 * comes from a run on the plan device: there the stack has no end and only its high-water mark counts (it is also
 * what that device counts as activations). Every piece is rounded up to 256 bytes.
 */
#ifndef TT_BACKEND_WORKSPACE_H
#define TT_BACKEND_WORKSPACE_H

#include "backend/device.h"
#include "tensor/tensor.h"

struct tt_workspace;

/* `bytes` is ignored on the plan device. */
TT_MUST_USE tt_status tt_workspace_create(struct tt_device *device, size_t bytes, struct tt_workspace **out);
void tt_workspace_destroy(struct tt_workspace *workspace);

/* Contiguous, 256-byte aligned, not initialised. `what` names it in the error when the plan was too small
 * (TT_ERR_INTERNAL: the plan is the allocator's own arithmetic, so that is a bug). */
TT_MUST_USE tt_status tt_workspace_1d(struct tt_workspace *workspace, const char *what, tt_dtype dtype,
                                      int64_t d0, tt_tensor *out);
TT_MUST_USE tt_status tt_workspace_2d(struct tt_workspace *workspace, const char *what, tt_dtype dtype,
                                      int64_t d0, int64_t d1, tt_tensor *out);
size_t tt_workspace_mark(const struct tt_workspace *workspace);
void tt_workspace_release(struct tt_workspace *workspace, size_t mark); /* pops all that came after `mark` */
size_t tt_workspace_peak(const struct tt_workspace *workspace);         /* bytes */
/* On the plan device: bytes of the largest piece that was called `what`, for tables; 0 when none was. */
size_t tt_workspace_largest(const struct tt_workspace *workspace, const char *what);

#endif
