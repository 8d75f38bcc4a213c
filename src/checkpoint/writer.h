/* The background part of a save: threads of each rank write its share of the files from a snapshot in host memory, and
 * rank 0 completes the checkpoint. Internal to src/checkpoint (save.h is the interface).
 *
 * Ranks do not communicate while they write. Each writes a note into the temporary folder, .written-<rank>, with the
 * sums of its parts; rank 0 waits for all notes, adds the small files and the manifest, and renames the folder. The sum
 * of each file follows from the parts' sums (base/crc64.h), so no file is read again. */
#ifndef TT_CHECKPOINT_WRITER_H
#define TT_CHECKPOINT_WRITER_H

#include <stdatomic.h>

#include "base/thread.h"
#include "checkpoint/layout.h"
#include "checkpoint/manifest.h"

/* A range of elements of the snapshot, to be written to a file. */
struct tt_writer_part {
    /* Host memory; lent. NULL: the values are those of a tensor of a file, of the entry's type. */
    const void *from;
    const struct tt_safetensors *file;
    const struct tt_safetensors_entry *stored; /* lent, as the file */
    tt_dtype dtype;
    const struct tt_safetensors_entry *entry;
    const struct tt_source_piece *piece; /* NULL: one after the other; by rows (io/param_source.h); lent */
    int64_t first, count;                /* elements of the entry, or of the piece */
};

struct tt_writer_file {
    const struct tt_weights_file *file; /* lent */
    bool writes_header;
    struct tt_writer_part *parts; /* owned */
    size_t part_count, capacity;
    uint64_t terms, written; /* terms of the sum, and bytes, written by this rank */
};

struct tt_writer {
    struct tt_writer_file *files; /* owned */
    size_t file_count;
    int rank;
    int ranks_here;                 /* ranks on this machine, which share its processors; 0 is 1 */
    const char *folder;             /* the temporary folder; lent */
    atomic_bool *cancelled;         /* lent: the save was abandoned */
    const atomic_bool *all_written; /* lent: every rank has ended its part */
    const struct tt_cancel *stop;   /* NULL or lent: a stop was requested */
    double patience_seconds;        /* for an invisible note; 0: 90 */
};
void tt_writer_deinit(struct tt_writer *writer);
TT_MUST_USE tt_status tt_writer_add_part(struct tt_writer_file *file, const struct tt_writer_part *part);
/* Writes this rank's share of the files with several threads, then its note. */
TT_MUST_USE tt_status tt_writer_run(struct tt_writer *writer);

/* Rank 0: waits for the note of every rank with expected[rank], removes the notes, and adds the files that they name to
 * `manifest`. A file with missing bytes is TT_ERR_INTERNAL. The wait ends with TT_ERR_IO when the folder was removed,
 * or when all ranks have written and a note stays invisible for patience_seconds (network file systems show new files
 * late), a quarter of it after a stop request; with TT_ERR_CANCELLED when the save is cancelled. */
TT_MUST_USE tt_status tt_writer_collect(const struct tt_writer *writer, const bool *expected, int world_size,
                                        struct tt_manifest *manifest);

/* A save that failed with `status`: TT_ERR_IO with a message of its own where a path is missing because the folder that
 * is written into, or a file in it, was removed meanwhile. May wait for a second: who removes a folder begins with its
 * files. `written`: all files should be there. tt_writer_run calls it itself, once the folder was made. */
tt_status tt_writer_explain(const struct tt_writer *writer, bool written, tt_status status);

#endif
