/* Shared by the files of io/quantized.h. */
#ifndef TT_IO_QUANTIZED_IMPL_H
#define TT_IO_QUANTIZED_IMPL_H

#include "io/quantized.h"

/* Finds scales and shape of codes in FP8. `codes` exists; `scales` is the tensor beside it. */
TT_MUST_USE tt_status tt_fp8_find(const struct tt_safetensors_entry *codes,
                                  const struct tt_safetensors_entry *scales, struct tt_quantized *out);
/* The same of the matrices of all experts, as one matrix. */
TT_MUST_USE tt_status tt_fp8_find_experts(const struct tt_safetensors_entry *codes,
                                          const struct tt_safetensors_entry *scales,
                                          struct tt_quantized *out);
/* Bytes [first, first + bytes) of its section of scales: one fp32 a row or block. */
TT_MUST_USE tt_status tt_fp8_read_scales(const struct tt_model_folder *folder,
                                         const struct tt_quantized *tensor, size_t first, size_t bytes,
                                         uint8_t *to);
/* Checks that the scales are finite. */
TT_MUST_USE tt_status tt_fp8_check_scales(const struct tt_model_folder *folder,
                                          const struct tt_quantized *tensor);

#endif
