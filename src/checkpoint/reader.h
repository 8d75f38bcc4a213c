/* Ranges of tensors in files into device memory, at the speed of the page cache or of the disk.
 *
 * The ranges are sorted by file and offset and cut into chunks, which several reader threads take in that
 * order. Where the memory of the device is the host's they read, and convert, straight into its place.
 * Elsewhere each fills page-locked buffers, two a thread, and the thread that drives the device queues the
 * uploads: a chunk is read while others are on their way. Host memory is bounded by 2 * threads *
 * (chunk_bytes + 192), counted under TT_PURPOSE_STAGING and given back at the end; a conversion takes 512 KiB a
 * thread beside it. */
#ifndef TT_CHECKPOINT_READER_H
#define TT_CHECKPOINT_READER_H

#include "backend/device.h"
#include "base/thread.h"
#include "io/safetensors.h"

enum { TT_READER_THREADS_MAX = 8 };
#define TT_READER_CHUNK_BYTES ((size_t)4 << 20)

/* Makes elements first .. first + count - 1 of what goes to the device; called by several threads at once. */
typedef tt_status tt_read_make(void *context, int64_t first, int64_t count, void *to);

/* Where some elements of a tensor go. */
struct tt_read_range {
    const struct tt_safetensors *file; /* lent, as is the entry */
    const struct tt_safetensors_entry *entry;
    int64_t first, count; /* elements of the flat tensor; count > 0 */
    void *to;             /* device memory: the place of element `first` */
    tt_dtype dtype;       /* type of `to` */
    bool in_host;         /* `to` is memory of the host that the device reaches */
    /* columns 0: the elements lie one after the other. Else they are rows of `columns` elements, and a row begins
     * `row_stride` elements after the row before it; `first` may be amid a row. The elements between two rows become
     * zero or keep their values. */
    int64_t columns, row_stride;
    /* NULL: the elements are read. Else `make` computes them from what it reads itself, in order of the file and of
     * `first`. Then columns is 0; file, entry and `to` may be NULL. */
    tt_read_make *make;
    void *context;    /* of `make` */
    const char *name; /* for messages; lent */
};

struct tt_reader_config {
    int threads;                    /* 0: as many as the device may use, at most TT_READER_THREADS_MAX */
    size_t chunk_bytes;             /* 0: TT_READER_CHUNK_BYTES */
    const struct tt_cancel *cancel; /* NULL or lent; any request ends the reading with TT_ERR_CANCELLED */
};

/* Reads all ranges (which are sorted in place) and waits until they are on the device; called by the thread
 * that drives it, all of whose uploads go through `stream`. The first error is the one that is reported; all
 * threads have ended. */
TT_MUST_USE tt_status tt_reader_run(struct tt_stream *stream, struct tt_read_range *ranges,
                                    size_t range_count, const struct tt_reader_config *config);

#endif
