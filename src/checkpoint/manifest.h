/* manifest.json: the last file of a checkpoint, with a list of its files. A folder with a manifest that verifies is
 * complete; a folder without one is not a checkpoint.
 *
 *     {"format": "trimtab-checkpoint", "version": 1, "step": 40,
 *      "files": {"adapter_model.safetensors": {"bytes": 123, "crc64": "0123456789abcdef"}, ...}}
 *
 * It lists every file of the folder but itself. crc64 is CRC-64/XZ of the whole file (base/crc64.h), independent of the
 * number of ranks that wrote it. The manifest is consistent with the files beside it because the folder appears by one
 * rename after all of it is on disk. */
#ifndef TT_CHECKPOINT_MANIFEST_H
#define TT_CHECKPOINT_MANIFEST_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/str.h"
#include "base/thread.h"

#define TT_MANIFEST_NAME "manifest.json"

struct tt_manifest_file {
    char *name; /* owned; below the folder, "tokenizer.json" */
    uint64_t bytes, crc64;
};

/* A zeroed manifest is empty. */
struct tt_manifest {
    int64_t step;
    struct tt_manifest_file *files; /* owned; in order of addition, or of name when parsed */
    size_t count, capacity;
};
void tt_manifest_deinit(struct tt_manifest *manifest);
/* NULL: not listed */
const struct tt_manifest_file *tt_manifest_find(const struct tt_manifest *manifest, const char *name);

/* A file of this name, if there is one, is listed no more. */
void tt_manifest_forget(struct tt_manifest *manifest, const char *name);
/* Adds a file of known size and sum; an existing file, which is read; every file of `folder` (and of the folders in it)
 * that is not listed yet, which are read. */
TT_MUST_USE tt_status tt_manifest_add(struct tt_manifest *manifest, const char *name, uint64_t bytes,
                                      uint64_t crc64);
TT_MUST_USE tt_status tt_manifest_add_file(struct tt_manifest *manifest, const char *folder,
                                           const char *name);
TT_MUST_USE tt_status tt_manifest_add_rest(struct tt_manifest *manifest, const char *folder);
/* Writes folder/manifest.json atomically; it is on disk when this returns. */
TT_MUST_USE tt_status tt_manifest_write(const struct tt_manifest *manifest, const char *folder);

/* Parses folder/manifest.json and checks nothing else. A missing manifest is TT_ERR_DATA. */
TT_MUST_USE tt_status tt_manifest_read(const char *folder, struct tt_manifest *manifest);
/* Checks that every listed file exists with its size. */
TT_MUST_USE tt_status tt_manifest_check_sizes(const struct tt_manifest *manifest, const char *folder);
/* Checks sizes, then reads and sums every byte, with several threads. TT_ERR_DATA names the first file (in order of
 * name) that is missing, of another size or changed. `cancel`: NULL or lent; any request ends it with
 * TT_ERR_CANCELLED. */
TT_MUST_USE tt_status tt_manifest_verify(const struct tt_manifest *manifest, const char *folder,
                                         const struct tt_cancel *cancel);

/* Lists the checkpoints of a run: folders checkpoint-N in `output_dir`, newest (greatest N) first, without verifying
 * them. `steps` is owned by the caller (tt_free); NULL and 0 without checkpoints or without the folder. */
TT_MUST_USE tt_status tt_checkpoint_list(const char *output_dir, int64_t **steps, size_t *count);
/* "output_dir/checkpoint-N"; returns owned memory, or NULL (record set). */
char *tt_checkpoint_path(const char *output_dir, int64_t step);
struct tt_checkpoint_search {
    const char *output_dir;
    const struct tt_cancel *cancel; /* NULL or lent */
    /* NULL, or called for each incomplete checkpoint, with the reason as one line. */
    void (*skipped)(void *context, const char *path, const char *reason);
    void *context;
};
/* Finds the newest checkpoint whose manifest verifies. *path is owned, NULL when there is none. *passed_over: number of
 * newer checkpoints that are incomplete. */
TT_MUST_USE tt_status tt_checkpoint_find_newest(const struct tt_checkpoint_search *search, char **path,
                                                size_t *passed_over);

#endif
