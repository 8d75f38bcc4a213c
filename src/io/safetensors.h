/* safetensors files, strict in reading and writing. Format: the safetensors README ("Format"): 8-byte little-endian
 * header size, JSON header, byte buffer; no holes, no overlap, no duplicate keys. Every offset, shape and size of a
 * file is checked before use (TT_ERR_DATA names file, tensor and fault). */
#ifndef TT_IO_SAFETENSORS_H
#define TT_IO_SAFETENSORS_H

#include "base/arena.h"
#include "base/error.h"
#include "base/str.h"
#include "tensor/tensor.h"

enum { TT_SAFETENSORS_RANK_MAX = 8 };

struct tt_safetensors_entry {
    const char *name; /* owned by the reader, or borrowed by the writer */
    /* NONE for types without arithmetic here (F4, C64, ...): listed, not readable */
    tt_dtype dtype;
    char dtype_name[16]; /* as spelled in the file */
    int rank;
    int64_t dims[TT_SAFETENSORS_RANK_MAX];
    uint64_t offset; /* absolute, in the file */
    uint64_t bytes;
};
static inline int64_t tt_safetensors_elements(const struct tt_safetensors_entry *entry)
{
    int64_t count = 1;
    for (int d = 0; d < entry->rank; d++) count *= entry->dims[d];
    return count;
}

/* An open file: header parsed, data not read. Thread safe for reading after open. */
struct tt_safetensors;
TT_MUST_USE tt_status tt_safetensors_open(const char *path, struct tt_safetensors **out);
void tt_safetensors_close(struct tt_safetensors *file); /* takes NULL */
const char *tt_safetensors_path(const struct tt_safetensors *file);
uint64_t tt_safetensors_file_bytes(const struct tt_safetensors *file);
size_t tt_safetensors_count(const struct tt_safetensors *file);
/* by offset */
const struct tt_safetensors_entry *tt_safetensors_entry(const struct tt_safetensors *file, size_t index);
/* or NULL */
const struct tt_safetensors_entry *tt_safetensors_find(const struct tt_safetensors *file, const char *name);
/* Gives each tensor the name that `name_of` makes of its own, in memory of `arena` or of the tensor's name; NULL ends
 * it with the record set. Two tensors of one name are TT_ERR_DATA. */
TT_MUST_USE tt_status tt_safetensors_rename(struct tt_safetensors *file,
                                            const char *(*name_of)(const void *context, const char *name,
                                                                   struct tt_arena *arena),
                                            const void *context);
const char *tt_safetensors_metadata(const struct tt_safetensors *file, const char *key); /* or NULL */
/* Reads `count` elements from element `first` on, converted to `dtype` (any pair of F32, BF16, F16, F64; other types
 * must be equal). Uses at most 1 MiB of host memory besides `to`. */
TT_MUST_USE tt_status tt_safetensors_read(const struct tt_safetensors *file,
                                          const struct tt_safetensors_entry *entry, int64_t first,
                                          int64_t count, void *to, tt_dtype dtype);

/* Writing: compute the layout first, then write pieces at their final offsets in any order, from any rank.
 * tt_safetensors_layout sorts like the reference library (by descending type size, then name), sets offset and bytes of
 * each entry, and appends the header (with metadata {"format": "pt"}) to `header`. *file_bytes: header and data. Entry
 * names must be distinct. */
TT_MUST_USE tt_status tt_safetensors_layout(struct tt_safetensors_entry *entries, size_t count,
                                            struct tt_str *header, uint64_t *file_bytes);

#endif
