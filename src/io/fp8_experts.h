/* Matrices of single experts in FP8 with scales beside them (io/quantized.h), as DeepSeek V3 and MiniMax-M2 are
 * published. A folder shows each as one tensor of its name, BF16, which is decoded where it is read: code * scale in
 * fp32, rounded once. What is joined of them (io/param_source.h) is then in numbers. Internal to src/io. */
#ifndef TT_IO_FP8_EXPERTS_H
#define TT_IO_FP8_EXPERTS_H

#include "io/model_folder.h"

/* Makes a file of the decoded tensors, which reads from those of the folder, and puts them in the list (of the folder,
 * in order of name) in the place of those that hold their codes and scales; NULL in *out where there are none. Codes
 * without scales stay. */
TT_MUST_USE tt_status tt_fp8_experts_show(const struct tt_model_folder *folder,
                                          const struct tt_param_sources *sources,
                                          struct tt_stored_tensor_place *tensors, size_t *count,
                                          struct tt_safetensors **out);

#endif
