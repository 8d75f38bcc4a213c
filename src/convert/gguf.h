/* GGUF files, version 3: the model format of llama.cpp and ggml. Source: ggml, docs/gguf.md; key names: gguf-py's
 * constants.py; compared with files of gguf-py's writer and with its reader.
 *
 *     "GGUF" · u32 3 · u64 tensors · u64 keys · the keys · the tensor table · padding to 32
 *     · tensors, each padded to 32
 *
 * All little-endian. Dimensions are innermost first: a matrix [rows, columns] has dimensions columns, rows.
 */
#ifndef TT_CONVERT_GGUF_H
#define TT_CONVERT_GGUF_H

#include "base/json.h"
#include "convert/gguf_mixture.h"
#include "convert/merge.h"

enum { TT_GGUF_ALIGNMENT = 32 };

/* A growing header; a zeroed struct is empty. Texts may contain any bytes; lengths are explicit. */
struct tt_gguf_header {
    struct tt_str keys, tensors; /* owned */
    uint64_t key_count, tensor_count;
    uint64_t data_bytes; /* of all tensors with their padding */
};
void tt_gguf_header_deinit(struct tt_gguf_header *header);

TT_MUST_USE tt_status tt_gguf_put_u32(struct tt_gguf_header *header, const char *key, int64_t value);
TT_MUST_USE tt_status tt_gguf_put_f32(struct tt_gguf_header *header, const char *key, double value);
TT_MUST_USE tt_status tt_gguf_put_bool(struct tt_gguf_header *header, const char *key, bool value);
TT_MUST_USE tt_status tt_gguf_put_string(struct tt_gguf_header *header, const char *key, struct tt_span text);
TT_MUST_USE tt_status tt_gguf_put_strings(struct tt_gguf_header *header, const char *key,
                                          const struct tt_span *texts, size_t count);
TT_MUST_USE tt_status tt_gguf_put_i32s(struct tt_gguf_header *header, const char *key, const int32_t *values,
                                       size_t count);
TT_MUST_USE tt_status tt_gguf_put_bools(struct tt_gguf_header *header, const char *key, const int32_t *values,
                                        size_t count); /* true: not 0 */
TT_MUST_USE tt_status tt_gguf_put_f32s(struct tt_gguf_header *header, const char *key, const float *values,
                                       size_t count);
/* `dims`: outermost first. *offset: from the start of the tensor data. */
TT_MUST_USE tt_status tt_gguf_add_tensor(struct tt_gguf_header *header, const char *name, int rank,
                                         const int64_t *dims, enum tt_gguf_type type, uint64_t *offset);
/* The bytes before the tensor data, padding included. */
TT_MUST_USE tt_status tt_gguf_header_write(const struct tt_gguf_header *header, struct tt_str *bytes);

/* A tensor of the format that no module of the model has. */
struct tt_gguf_vector {
    float *values; /* owned */
    int64_t count;
    uint64_t offset; /* tt_gguf_add_tensor's */
};
struct tt_gguf_vectors { /* zeroed: empty */
    struct tt_gguf_vector *items;
    size_t count, capacity;
};
/* Describes all that a model's family and rotations need, and makes their values. */
TT_MUST_USE tt_status tt_gguf_add_vectors(const struct tt_model_facts *facts, struct tt_gguf_header *header,
                                          struct tt_gguf_vectors *vectors);
void tt_gguf_vectors_deinit(struct tt_gguf_vectors *vectors);

/* Writes the tokenizer.* keys from folder/tokenizer.json and the files beside it, for `vocab_size` rows of embeddings.
 * The format identifies kinds of tokenizers by name, not by rule; TT_ERR_UNSUPPORTED names a property that it cannot
 * express. End tokens: eos is the tokenizer's, eot and eom are others of generation_config.json and config.json. */
TT_MUST_USE tt_status tt_gguf_put_tokenizer(struct tt_gguf_header *header, const char *folder,
                                            const struct tt_model_facts *config);

struct tt_gguf_options {
    const char *output_file; /* must not exist unless `overwrite` */
    bool overwrite;
    tt_dtype dtype; /* of matrices: F32, F16, BF16; NONE: the base's own. Vectors are always F32 */
    /* NULL, or what most matrices are quantized to; the others have `dtype` */
    const struct tt_gguf_mixture *mixture;
    bool adapter_only; /* LoRA's A and B instead of a merged model; of mixtures only q8_0 */
    struct tt_merge_work work;
};

struct tt_gguf_report {
    char architecture[16];
    size_t tensors;
    uint64_t bytes; /* of the file */
    tt_dtype dtype;
    size_t of_type[TT_GGUF_TYPES]; /* tensors */
    int64_t weights;               /* of these, */
    uint64_t weight_bytes;         /* and their bytes */
};

/* Writes the merged model, or the adapter, into one file, which appears when it is complete. TT_ERR_UNSUPPORTED names a
 * property that the format cannot express. */
TT_MUST_USE tt_status tt_gguf_export(const struct tt_merge *merge, const struct tt_gguf_options *options,
                                     struct tt_gguf_report *report);

#endif
