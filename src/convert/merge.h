/* A base model folder, alone or with a PEFT adapter, as the tensors of one plain model: W + s * B A for adapted modules
 * (with DoRA its rows have the adapter's lengths), the adapter's copy for modules_to_save, a table with the adapter's
 * rows of tokens in the place of its own (trainable_token_indices), the base's tensor for all others.
 *
 * Values are computed row by row in fp32 from any stored type and rounded once, to the type of the output; the same
 * numbers on any number of threads. Threads work on chunks of some MiB; no tensor is held as a whole.
 *
 * Where config.json ties embeddings and head but the adapter changes only one of the two (or both, separately), the
 * merged model has both and is no longer tied (`unties`); its config.json must say so.
 */
#ifndef TT_CONVERT_MERGE_H
#define TT_CONVERT_MERGE_H

#include "base/thread.h"
#include "convert/gguf_types.h"
#include "io/quantized.h"
#include "model/family.h"

/* A tensor of the merged model. Matrices are [rows, columns], vectors [rows, 1]. */
struct tt_merge_tensor {
    const char *name;   /* "model.layers.0.self_attn.q_proj.weight" */
    const char *stored; /* in a folder: the base's own spelling, or `name` */
    bool left_alone;    /* of a part beside the text model: copied, of any rank and type */
    /* in the base folder; NULL: not a tensor of a model (LoRA's A or B) */
    const struct tt_safetensors_entry *base;
    const struct tt_safetensors_entry *saved; /* in the adapter: replaces `base`; NULL: none */
    /* in the adapter, [r, columns] and [rows, r], or of experts as nn/expert_linear.h has them; NULL: none */
    const struct tt_safetensors_entry *lora_A, *lora_B;
    const struct tt_safetensors_entry *magnitude; /* in the adapter, [rows]: DoRA's; NULL: none */
    /* in the adapter, [tokens, columns]: replaces the rows of these tokens; NULL: none */
    const struct tt_safetensors_entry *trained;
    const int32_t *tokens; /* the model's */
    int64_t token_count;
    int64_t experts; /* 0: one matrix; else the adapter is of this many, one after the other */
    const struct tt_quantized *quantized; /* `base` holds its codes; NULL: plain values */
    tt_dtype dtype;                       /* of the base's values */
    float scaling;
    int64_t r;
    int64_t rows, columns; /* of several matrices: all their rows */
    int rank;
    int64_t dims[TT_SAFETENSORS_RANK_MAX];
};

struct tt_merge {
    struct tt_model_folder *folder;
    struct tt_safetensors *adapter;  /* NULL: none */
    struct tt_model *model;          /* with the adapter's LoRA; without values */
    struct tt_merge_tensor *tensors; /* in order of the model; owned */
    size_t count;
    struct tt_name_index index; /* of the tensors by name */
    bool unties, quantized;     /* quantized: some of the base is */
    bool own_tokenizer; /* the adapter's folder has the tokenizer, with tokens that the base's lacks */
    struct tt_arena arena;
};

/* `adapter` may be NULL. Checks both folders against each other before a tensor is read: TT_ERR_DATA names tensors that
 * are missing, unexpected or of another shape. A zeroed struct is empty, as is the struct after an error. */
TT_MUST_USE tt_status tt_merge_open(const char *base, const char *adapter, struct tt_merge *merge);
void tt_merge_close(struct tt_merge *merge);
/* Names the labels of the scores that the merged model gives (io/labels.h). TT_ERR_USAGE: it has none, or another
 * number of them. Borrows `names`. */
TT_MUST_USE tt_status tt_merge_name_labels(struct tt_merge *merge, const char *names);
/* The folder of the adapter, which there is; returns owned memory or NULL (record set). */
char *tt_merge_adapter_folder(const struct tt_merge *merge);

/* Statistics of the change of one tensor, or of several together. */
struct tt_merge_change {
    double largest;          /* of |new - old| */
    double squares;          /* sum of (new - old)^2 */
    double base_squares;     /* sum of old^2 */
    double rounding_squares; /* sum of (new - its value before rounding)^2 */
    int64_t count;           /* elements */
};
void tt_merge_change_add(struct tt_merge_change *sum, const struct tt_merge_change *more);
double tt_merge_change_rms(const struct tt_merge_change *change);

/* Destination of a piece of a tensor: a tensor whose values begin at `offset` of an open file. */
struct tt_merge_piece {
    struct tt_source_piece piece;
    int descriptor;
    const char *path;
    uint64_t offset;
};
/* Destination of a tensor: from `offset` of an open file on, row after row. */
struct tt_merge_output {
    const struct tt_merge_tensor *tensor;
    tt_dtype dtype; /* F32, BF16, F16 or F64 */
    /* F32: rows are numbers of `dtype`. Else they are encoded, `dtype` is F32, and there are no pieces. */
    enum tt_gguf_type encoded;
    int descriptor;
    const char *path; /* for messages */
    uint64_t offset;
    /* NULL, or lent: the tensor goes to these places instead (io/param_source.h); with them no head_rows */
    const struct tt_merge_piece *pieces;
    size_t piece_count;
    /* 0: rows keep their order. Else heads have head_rows rows, and in each the rows of the two halves are interleaved:
     * row half * head_rows / 2 + i becomes row 2 * i + half. */
    int64_t head_rows;
    /* The type is F32 with negated_exp; transposed: each part is. Not with head_rows or pieces. */
    struct tt_gguf_arrangement arrangement;
    float shift; /* added to each value; the type is then F32 */
    /* Rows [part_first, part_first + part_rows) of every part_period are written, one after the other; part_period 0:
     * all rows. Not with head_rows, pieces or an arrangement of rows. */
    int64_t part_period, part_first, part_rows;
    bool multiplied; /* each value by `factor`; not for tensors that an adapter changes */
    float factor;
    struct tt_merge_change change; /* out; only for tensors that an adapter changes */
};

struct tt_merge_work {
    int threads;                    /* 0: one per processor, at most 8 */
    const struct tt_cancel *cancel; /* NULL or lent; any request ends it with TT_ERR_CANCELLED */
};
/* Computes and writes all outputs. A non-finite value in a tensor that the adapter changes is TT_ERR_DATA. */
TT_MUST_USE tt_status tt_merge_run(const struct tt_merge *merge, struct tt_merge_output *outputs,
                                   size_t count, const struct tt_merge_work *work);

struct tt_merge_options {
    const char *output_dir; /* must not exist, or be empty, unless `overwrite` */
    bool overwrite;
    tt_dtype dtype;           /* NONE: each tensor keeps the base's type */
    uint64_t max_shard_bytes; /* of one weights file; 0: 50 GB, transformers' default */
    struct tt_merge_work work;
};

struct tt_merge_report {
    struct tt_merge_output *outputs; /* one per tensor, in order of the model; owned */
    size_t count, changed;
    struct tt_merge_change total; /* of the tensors that changed */
    size_t files;
    uint64_t bytes; /* of all tensors */
};

/* Writes a model folder: weights, index, and every other file of the base folder byte for byte (config.json with the
 * keys affected by `dtype` and `unties` changed). output_dir appears when it is complete. */
TT_MUST_USE tt_status tt_merge_write(const struct tt_merge *merge, const struct tt_merge_options *options,
                                     struct tt_merge_report *report);
void tt_merge_report_deinit(struct tt_merge_report *report);

#endif
