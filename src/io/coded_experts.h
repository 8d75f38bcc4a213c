/* Matrices of experts in codes with scales beside them (io/quantized.h): single ones in FP8, as DeepSeek V3 and
 * MiniMax-M2 are published, and in the formats of bitsandbytes, as folders of transformers before version 5 have them;
 * those of all experts in one tensor in FP8, as Mistral Small 4 is published. A folder shows each as one tensor of its
 * name, BF16, which is decoded where it is read: computed in fp32, rounded once. What is joined of them
 * (io/param_source.h) is then in numbers, and in codes too. */
#ifndef TT_IO_CODED_EXPERTS_H
#define TT_IO_CODED_EXPERTS_H

#include "io/model_folder.h"
#include "tensor/quant.h"

/* Makes a file of the decoded tensors, which reads from those of the folder, and puts them in the list (of the folder,
 * in order of name) in the place of those that hold their codes and scales; NULL in *out where there are none. Codes
 * without scales stay. */
TT_MUST_USE tt_status tt_coded_experts_show(const struct tt_model_folder *folder,
                                            const struct tt_param_sources *sources,
                                            struct tt_stored_tensor_place *tensors, size_t *count,
                                            struct tt_safetensors **out);
/* The layout of the segment (tensor/quant.h) in which the folder holds the matrices of experts that are this tensor, or
 * those of single ones that are joined to it, as one matrix of all their rows; bytes 0: it holds them in numbers, in
 * several formats, or in blocks that go from one matrix to the next. Nested scales are shown as plain ones, with the
 * same numbers. */
TT_MUST_USE tt_status tt_model_folder_coded(const struct tt_model_folder *folder,
                                            const struct tt_safetensors_entry *entry,
                                            struct tt_quant_layout *layout);
/* Bytes [first, first + bytes) of that segment. */
TT_MUST_USE tt_status tt_model_folder_read_coded(const struct tt_model_folder *folder,
                                                 const struct tt_safetensors_entry *entry,
                                                 const struct tt_quant_layout *layout, size_t first,
                                                 size_t bytes, void *to);

struct tt_quantized;
/* The matrices of all experts of a tensor of the file, in codes. */
const struct tt_quantized *tt_coded_experts_all(const struct tt_safetensors *coded,
                                                const struct tt_safetensors_entry *entry);
/* The same of a file of such tensors and one that is joined of them. */
TT_MUST_USE tt_status tt_coded_experts_layout(const struct tt_safetensors *coded,
                                              const struct tt_safetensors *joined,
                                              const struct tt_safetensors_entry *entry,
                                              struct tt_quant_layout *layout);
TT_MUST_USE tt_status tt_coded_experts_read_segment(const struct tt_safetensors *coded,
                                                    const struct tt_safetensors *joined,
                                                    const struct tt_safetensors_entry *entry,
                                                    const struct tt_quant_layout *layout, size_t first,
                                                    size_t bytes, void *to);

#endif
