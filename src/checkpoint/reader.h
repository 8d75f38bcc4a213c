/* Reads ranges of tensors in files into device memory, at the speed of the page cache or of the disk.
 *
 * The ranges are sorted by file and offset and cut into chunks, which several reader threads process in that order.
 * Where the device's memory is the host's, they read and convert directly to the destination. Elsewhere each fills
 * page-locked buffers, two a thread, and the thread that drives the device queues the uploads: chunks are read while
 * others are uploaded. Host memory is bounded by 2 * threads * (chunk_bytes + 192), counted under TT_PURPOSE_STAGING
 * and freed at the end; a conversion needs 512 KiB a thread besides. */
#ifndef TT_CHECKPOINT_READER_H
#define TT_CHECKPOINT_READER_H

#include "backend/device.h"
#include "base/thread.h"
#include "io/safetensors.h"

enum { TT_READER_THREADS_MAX = 8 };
#define TT_READER_CHUNK_BYTES ((size_t)4 << 20)

/* Computes elements first .. first + count - 1 for the device; called by several threads at once. */
typedef tt_status tt_read_make(void *context, int64_t first, int64_t count, void *to);

/* A range of elements of a tensor and its destination. */
struct tt_read_range {
    const struct tt_safetensors *file; /* lent, as is the entry */
    const struct tt_safetensors_entry *entry;
    int64_t first, count; /* elements of the flat tensor; count > 0 */
    void *to;             /* device memory: destination of element `first` */
    tt_dtype dtype;       /* type of `to` */
    bool in_host;         /* `to` is host memory that the device can access */
    /* columns 0: the elements are contiguous. Else they are rows of `columns` elements, and a row begins `row_stride`
     * elements after the previous one; `first` may be inside a row. The elements between two rows become zero or keep
     * their values. */
    int64_t columns, row_stride;
    /* NULL: the elements are read. Else `make` reads its own input and computes them, in order of the file and of
     * `first`; columns is then 0, and file, entry and `to` may be NULL. */
    tt_read_make *make;
    void *context;    /* of `make` */
    const char *name; /* for messages; lent */
};

struct tt_reader_config {
    int threads;                    /* 0: as many as the device may use, at most TT_READER_THREADS_MAX */
    size_t chunk_bytes;             /* 0: TT_READER_CHUNK_BYTES */
    const struct tt_cancel *cancel; /* NULL or lent; any request ends the reading with TT_ERR_CANCELLED */
};

/* Reads all ranges (sorts them in place) and waits until they are on the device; called by the thread that drives the
 * device; all uploads go through `stream`. Reports the first error; all threads have ended when it returns. */
TT_MUST_USE tt_status tt_reader_run(struct tt_stream *stream, struct tt_read_range *ranges,
                                    size_t range_count, const struct tt_reader_config *config);

#endif
