/* The open weights file of io/safetensors.h, which io/pth.h makes too. Internal to src/io. */
#ifndef TT_IO_SAFETENSORS_IMPL_H
#define TT_IO_SAFETENSORS_IMPL_H

#include "io/safetensors.h"

/* Elements from element to element of each dimension. */
struct tt_tensor_strides {
    int64_t of[TT_SAFETENSORS_RANK_MAX];
    bool by_rows; /* stored like a tensor of a safetensors file */
};

struct tt_safetensors {
    char *path;
    int descriptor;
    uint64_t file_bytes;
    struct tt_arena arena; /* names and metadata */
    struct tt_safetensors_entry *entries;
    const struct tt_safetensors_entry **by_name;
    size_t count;
    struct tt_safetensors_pair {
        const char *key, *value;
    } * metadata;
    size_t metadata_count;
    struct tt_tensor_strides *strides; /* [count]; NULL: all tensors are stored by rows */
    /* NULL, or: the tensors are made of those of other files (io/param_source.h), or decoded (io/mxfp4.h), or made of
     * adapters of single experts (io/expert_adapters.h) */
    struct tt_joined *joined;
    struct tt_mxfp4_tensors *mxfp4;
    struct tt_coded_experts *coded; /* io/coded_experts.h */
    struct tt_shown_adapters *adapters;
    struct tt_grown_rows *grown; /* io/grown_rows.h */
    struct tt_halves *halves;    /* io/halves.h */
};

/* A file without a descriptor, at this path, with room for so many entries; NULL where memory ends. */
struct tt_safetensors *tt_safetensors_create(const char *path, size_t entries);
/* Sorts `by_name`; two tensors of one name are TT_ERR_DATA. */
TT_MUST_USE tt_status tt_safetensors_index(struct tt_safetensors *file);
/* Reads elements of a joined tensor, in its own type. */
TT_MUST_USE tt_status tt_joined_read(const struct tt_safetensors *file,
                                     const struct tt_safetensors_entry *entry, int64_t first, int64_t count,
                                     void *to);
void tt_joined_destroy(struct tt_joined *joined); /* takes NULL */
/* The same of a decoded tensor, in BF16. */
TT_MUST_USE tt_status tt_mxfp4_read(const struct tt_safetensors *file,
                                    const struct tt_safetensors_entry *entry, int64_t first, int64_t count,
                                    void *to);
void tt_mxfp4_destroy(struct tt_mxfp4_tensors *tensors); /* takes NULL */
/* The same of a decoded tensor of io/coded_experts.h, in BF16. */
TT_MUST_USE tt_status tt_coded_experts_read(const struct tt_safetensors *file,
                                            const struct tt_safetensors_entry *entry, int64_t first,
                                            int64_t count, void *to);
void tt_coded_experts_destroy(struct tt_coded_experts *experts); /* takes NULL */
/* The same of a tensor of io/expert_adapters.h, in its own type. */
TT_MUST_USE tt_status tt_shown_adapters_read(const struct tt_safetensors *file,
                                             const struct tt_safetensors_entry *entry, int64_t first,
                                             int64_t count, void *to);
void tt_shown_adapters_destroy(struct tt_shown_adapters *adapters); /* takes NULL */
/* The same of a table of io/grown_rows.h, in its own type. */
TT_MUST_USE tt_status tt_grown_rows_read(const struct tt_safetensors *file,
                                         const struct tt_safetensors_entry *entry, int64_t first,
                                         int64_t count, void *to);
void tt_grown_rows_destroy(struct tt_grown_rows *grown); /* takes NULL */
/* The same of a tensor of io/halves.h. */
TT_MUST_USE tt_status tt_halves_read(const struct tt_safetensors *file,
                                     const struct tt_safetensors_entry *entry, int64_t first, int64_t count,
                                     void *to);
void tt_halves_destroy(struct tt_halves *halves); /* takes NULL */
/* Reads elements of a tensor that is not stored by rows, in its own type. */
TT_MUST_USE tt_status tt_strided_read(const struct tt_safetensors *file,
                                      const struct tt_safetensors_entry *entry, int64_t first, int64_t count,
                                      void *to);

#endif
