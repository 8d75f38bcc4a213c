/* Fingerprints of the input files of a run, to detect machines with different files, and a resume on changed files,
 * before the first step.
 *
 * A part is a file or a tensor. Its `quick` sum is over
 *   weights files     size and header
 *   tensors           all bytes below 64 KiB; else 16 blocks of 4 KiB, one in each sixteenth, at offsets derived from
 *                     the tensor's name
 *   weights files in the hub's cache, and data above 1 GiB there: also the SHA-256 in the name that they are linked to,
 *                     which is compared where both sides have one
 *   all other files   all bytes, and of data above 1 GiB the size, the first and the last MiB and 1,024 blocks of 4 KiB
 * and with verify_inputs: full its `full` sum is over all bytes. Sums are CRC-64 (base/crc64.h): they detect damaged
 * copies and files of another version, not deliberate changes. Names and times of files are ignored. */
#ifndef TT_LAUNCH_FINGERPRINT_H
#define TT_LAUNCH_FINGERPRINT_H

#include "job/inputs.h"
#include "launch/world.h"

enum tt_fingerprint_role {
    TT_FINGERPRINT_SETTING, /* of the run; in no checkpoint */
    TT_FINGERPRINT_MODEL,   /* config.json, weights files, tensors */
    TT_FINGERPRINT_TOKENIZER,
    TT_FINGERPRINT_ADAPTER,    /* the adapter to start from */
    TT_FINGERPRINT_DATA,       /* files of rows */
    TT_FINGERPRINT_ROWS,       /* tokens of these rows; in no checkpoint */
    TT_FINGERPRINT_CHECKPOINT, /* the checkpoint to resume from; in no checkpoint */
    TT_FINGERPRINT_HUB,        /* the hub's sum of a file; quick 0: not known, which is no difference */
};

/* The beginning of their names. */
#define TT_HUB_PART "the hub's sum of "

struct tt_fingerprint_part {
    char *name; /* owned: "tensor 'lm_head.weight' of 'model.safetensors'", "the training data" */
    enum tt_fingerprint_role role;
    uint64_t quick, full; /* full: 0 unless requested */
    int64_t amount;       /* bytes, for ROWS the number of rows; for messages */
};

/* A zeroed struct is empty. */
struct tt_fingerprint {
    struct tt_fingerprint_part *parts; /* in an order determined by the files */
    size_t count, capacity;
    bool full;
};

/* Reads the files of `inputs` once for all ranks of the process, with several threads. `settings`: lines "name: value"
 * that must be the same in all processes, or NULL; of a run those of the world, which processes under MPI compare only
 * here. `checkpoint`: the folder to resume from, or NULL. On error the
 * struct is empty. */
TT_MUST_USE tt_status tt_fingerprint_compute(enum tt_verify_inputs verify, const char *settings,
                                             const struct tt_inputs *inputs, const char *checkpoint,
                                             const struct tt_cancel *cancel,
                                             struct tt_fingerprint *fingerprint);
void tt_fingerprint_deinit(struct tt_fingerprint *fingerprint);

/* Collective over the processes of the run: unless all fingerprints are equal, TT_ERR_DATA in all of them, with the
 * first different part and two machines. */
TT_MUST_USE tt_status tt_fingerprint_compare(const struct tt_fingerprint *fingerprint,
                                             struct tt_world *world);

/* The form stored in a checkpoint: {"tensor 'x' of 'y'": "quick full", ...} in hexadecimal. Owned; NULL without
 * memory. */
struct tt_json_value *tt_fingerprint_json(const struct tt_fingerprint *fingerprint);
/* Lists, separated by "; ", the parts that differ from `before`: in `broken` those that make it another run
 * (TT_FINGERPRINT_MODEL), in `changed` all others. Both stay empty without changes. Full sums are compared where both
 * have one. */
TT_MUST_USE tt_status tt_fingerprint_changes(const struct tt_fingerprint *fingerprint,
                                             const struct tt_json_value *before, struct tt_str *broken,
                                             struct tt_str *changed);

#endif
