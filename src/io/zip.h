/* ZIP archives of stored members (APPNOTE.TXT 6.3.10, sections 4.3 to 4.5), read by the central directory: torch.save
 * writes sizes behind the data. ZIP64 is read; several volumes are not. Offsets are checked before use. */
#ifndef TT_IO_ZIP_H
#define TT_IO_ZIP_H

#include "base/arena.h"
#include "base/error.h"
#include "base/name_index.h"

struct tt_zip_member {
    const char *name;
    uint64_t head; /* offset of the local header */
    uint64_t bytes, stored_bytes;
    unsigned method, flags;
};

/* A zeroed struct is empty. */
struct tt_zip {
    int descriptor;    /* borrowed */
    const char *path;  /* borrowed */
    uint64_t data_end; /* where the central directory begins */
    struct tt_arena arena;
    struct tt_zip_member *members;
    size_t count;
    struct tt_name_index index;
};

TT_MUST_USE tt_status tt_zip_read(int descriptor, const char *path, uint64_t file_bytes, struct tt_zip *zip);
void tt_zip_deinit(struct tt_zip *zip);
/* NULL: there is none of this name. */
const struct tt_zip_member *tt_zip_find(const struct tt_zip *zip, const char *name);
/* Where the bytes of a member are in the file. A member that is compressed or encrypted is TT_ERR_UNSUPPORTED. */
TT_MUST_USE tt_status tt_zip_locate(const struct tt_zip *zip, const struct tt_zip_member *member,
                                    uint64_t *offset);

#endif
