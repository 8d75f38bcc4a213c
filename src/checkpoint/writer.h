/* The background half of a save: one rank's share of the files, written by threads of its own from a snapshot in host
 * memory, and, on rank 0, what makes a checkpoint of it. Internal to src/checkpoint (save.h is for the others).
 *
 * Ranks do not talk while they write. Each leaves a note in the temporary folder, .written-<rank>, with the sums of
 * what it wrote; rank 0 waits for all notes, adds the small files and the manifest, and renames the folder. What a
 * rank wrote adds up to the sum of each file (base/crc64.h), so nobody reads anything again to know it. */
#ifndef TT_CHECKPOINT_WRITER_H
#define TT_CHECKPOINT_WRITER_H

#include <stdatomic.h>

#include "base/thread.h"
#include "checkpoint/layout.h"
#include "checkpoint/manifest.h"

/* Elements on their way from the snapshot into a file. */
struct tt_writer_part {
    const void *from; /* host memory; lent */
    tt_dtype dtype;
    const struct tt_safetensors_entry *entry;
    int64_t first, count; /* elements of the entry */
};

struct tt_writer_file {
    const struct tt_weights_file *file; /* lent */
    bool writes_header;
    struct tt_writer_part *parts; /* owned */
    size_t part_count, capacity;
    uint64_t terms, written; /* of the sum; bytes that this rank wrote */
};

struct tt_writer {
    struct tt_writer_file *files; /* owned */
    size_t file_count;
    int rank;
    int ranks_here;         /* on this machine, this one included: they share its processors; 0 is 1 */
    const char *folder;     /* the temporary one; lent */
    atomic_bool *cancelled; /* lent: somebody no longer wants this */
    const atomic_bool *all_written; /* lent: every rank has ended its part */
    const struct tt_cancel *stop;   /* NULL or lent: a stop was requested */
    double patience_seconds;        /* for a note that is not seen; 0: 90 */
};
void tt_writer_deinit(struct tt_writer *writer);
TT_MUST_USE tt_status tt_writer_add_part(struct tt_writer_file *file, const struct tt_writer_part *part);
/* Files of this rank's share, by several threads, then its note. */
TT_MUST_USE tt_status tt_writer_run(struct tt_writer *writer);

/* Rank 0: waits until every rank with expected[rank] has left its note, takes the notes away, and adds the files that
 * they name to `manifest`. A file of which bytes are missing is TT_ERR_INTERNAL. The wait ends with TT_ERR_IO when the
 * folder is gone, or when all ranks have written and a note is not seen for patience_seconds (network file systems
 * show new files late), a quarter of it once a stop was requested; with TT_ERR_CANCELLED when the save is cancelled. */
TT_MUST_USE tt_status tt_writer_collect(const struct tt_writer *writer, const bool *expected, int world_size,
                                        struct tt_manifest *manifest);

#endif
