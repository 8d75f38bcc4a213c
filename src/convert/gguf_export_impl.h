/* The export of a model or an adapter as a GGUF file: for its sources alone. */
#ifndef TT_CONVERT_GGUF_EXPORT_IMPL_H
#define TT_CONVERT_GGUF_EXPORT_IMPL_H

#include "convert/gguf.h"

struct gguf_export {
    const struct tt_merge *merge;
    const struct tt_model_facts *facts;
    const struct tt_gguf_options *options;
    const struct tt_gguf_family *architecture;
    tt_dtype dtype;
    double alpha; /* adapter.lora.alpha */
    struct tt_gguf_keys keys;
    struct tt_gguf_rule rule;
    size_t of_type[TT_GGUF_TYPES]; /* tensors of the model or of the adapter */
    int64_t weights;               /* and their bytes */
    uint64_t weight_bytes;
    struct tt_gguf_header header;
    struct tt_str bytes, temporary;   /* the header; path of the incomplete file */
    struct tt_merge_tensor *matrices; /* A and B, which are not tensors of a model; biases as rows */
    size_t matrix_count;
    struct tt_merge_output *outputs;
    size_t output_count;
    struct tt_gguf_vectors vectors;
};

/* TT_ERR_UNSUPPORTED: the format has no place for `what`. `hint` may be NULL. */
TT_MUST_USE tt_status gguf_refuse(const char *what, const char *hint);

/* Write the keys of a merged model, or of an adapter. */
TT_MUST_USE tt_status gguf_put_model_keys(struct gguf_export *export);
TT_MUST_USE tt_status gguf_put_adapter_keys(struct gguf_export *export);
/* The number of a key of the architecture, of a list that of the first layer; 0 without the key. */
int64_t gguf_number_of(const struct gguf_export *export, const char *key);

#endif
