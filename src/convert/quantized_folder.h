/* Quantizes a model folder into another folder, which transformers and this program load. Memory is bounded: one absmax
 * for each block of one tensor, and a few MiB for each thread. Each weight is read twice. The output is the same on any
 * number of threads. */
#ifndef TT_CONVERT_QUANTIZED_FOLDER_H
#define TT_CONVERT_QUANTIZED_FOLDER_H

#include "base/thread.h"
#include "io/quantized.h"

/* Quantization error of some weights. */
struct tt_quantize_error {
    int64_t tensors, count;
    double squares; /* of the weights */
    double errors;  /* sum of the squared differences of decoded values and weights */
};

/* ---- One tensor ---- */

struct tt_quantize_tensor {
    const struct tt_model_folder *folder;
    const struct tt_safetensors_entry *entry;
    const struct tt_quant_layout *layout;
    int descriptor; /* of the output */
    const char *path;
    uint64_t codes_at; /* byte of the file */
    int threads;
    const struct tt_cancel *cancel; /* NULL or lent */
};
/* Writes the codes; the rest of the segment, from layout->absmax.offset on, is returned owned in `tail`. */
TT_MUST_USE tt_status tt_quantize_tensor(const struct tt_quantize_tensor *tensor, uint8_t **tail,
                                         float *offset, struct tt_quantize_error *error);

/* ---- A folder ---- */

struct tt_quantize_options {
    const char *output_dir; /* must not exist, or be empty, unless `overwrite` */
    bool overwrite;
    struct tt_quantized_config config; /* written to config.json */
    /* NULL, or how the names of `folder` were changed (tt_model_folder_join), without parts */
    const struct tt_param_sources *names;
    /* The format of a weight; NULL: the tensor is copied. */
    const struct tt_quant_layout *(*layout_of)(void *context, const char *name);
    bool unties; /* config.json ties embeddings and head that differ: the new one does not */
    void *context;
    uint64_t max_shard_bytes; /* of one weights file; 0: 50 GB, transformers' default */
    int threads;              /* 0: one per processor, at most 8 */
    const struct tt_cancel *cancel;
};

enum { TT_QUANTIZE_KINDS = 32 };

struct tt_quantize_report {
    struct {
        char name[48]; /* "q_proj": the last part of the module's name */
        struct tt_quantize_error error;
    } kinds[TT_QUANTIZE_KINDS];
    int kind_count;
    struct tt_quantize_error total;
    uint64_t bytes_before, bytes_after; /* of all tensors */
    size_t tensors, files;              /* tensors of `folder` */
};

/* output_dir appears when it is complete. A folder that is quantized already is TT_ERR_USAGE. */
TT_MUST_USE tt_status tt_quantized_folder_write(const struct tt_model_folder *folder,
                                                const struct tt_quantize_options *options,
                                                struct tt_quantize_report *report);

#endif
