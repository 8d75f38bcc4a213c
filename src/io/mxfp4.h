/* Tensors in MXFP4 (tensor/mxfp4.h) as gpt-oss stores the weights of its experts: P_blocks, U8 [.., groups, 16], and
 * P_scales, U8 [.., groups]. A folder shows both as one tensor P_blocks, BF16 [.., 32 groups], which is decoded where
 * it is read. Source: convert_moe_packed_tensors of transformers 5.24 (integrations/mxfp4.py), whose result is the
 * transposed one. Internal to src/io. */
#ifndef TT_IO_MXFP4_H
#define TT_IO_MXFP4_H

#include "io/param_source.h"

/* Makes a file of the decoded tensors, which reads from the others, and puts them in the list (owned by the caller, in
 * order of name) in the place of those that hold their codes and scales; NULL in *out where there are none. Scales that
 * are missing or of another shape are TT_ERR_DATA. `origin`: of the files, for messages. */
TT_MUST_USE tt_status tt_mxfp4_show(const char *origin, struct tt_stored_tensor_place *tensors, size_t *count,
                                    struct tt_safetensors **out);

#endif
