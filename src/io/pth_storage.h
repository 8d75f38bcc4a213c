/* Containers of torch.save: where the storages of a file are. Internal to src/io. */
#ifndef TT_IO_PTH_STORAGE_H
#define TT_IO_PTH_STORAGE_H

#include "base/name_index.h"
#include "io/pickle.h"
#include "io/zip.h"
#include "tensor/dtype.h"

struct tt_pth_storage {
    const char *key, *type_name; /* "FloatStorage" */
    tt_dtype dtype;              /* NONE: of a type without arithmetic here, or of bytes */
    unsigned width;              /* bytes of an element; 0: of an unknown type */
    uint64_t elements;
    bool located;
    uint64_t offset; /* in the file */
};

/* An open file: its object, and its storages by key. A zeroed struct is closed. */
struct tt_pth_file {
    int descriptor;   /* borrowed */
    const char *path; /* borrowed */
    uint64_t file_bytes;
    struct tt_pickle object;
    struct tt_zip zip;  /* without members: a stream */
    const char *prefix; /* of the members: "archive/data/" */
    struct tt_arena arena;
    struct tt_pth_storage *storages;
    size_t count;
    struct tt_name_index index;
};

TT_MUST_USE tt_status tt_pth_file_open(int descriptor, const char *path, uint64_t file_bytes,
                                       struct tt_pth_file *file);
void tt_pth_file_close(struct tt_pth_file *file);
/* The storage that a STORED value names, located; `skipped`: elements of the storage before the view that it
 * names. */
TT_MUST_USE tt_status tt_pth_file_storage(struct tt_pth_file *file, const struct tt_pickle_value *stored,
                                          const struct tt_pth_storage **storage, uint64_t *skipped);

/* torch's name of the storages of a type; NULL: it has none. */
const char *tt_pth_storage_name(tt_dtype dtype);

#endif
