/* The arguments of one pass of a micro batch through the blocks of a model: lent services, inputs, and results. The
 * caller (the executor, or a test) fills services and inputs; blocks change neither and get the pass as const. A block
 * has no access to ranks or communicators: requests to other ranks go through a lent exchange. */
#ifndef TT_NN_PASS_H
#define TT_NN_PASS_H

#include "backend/device.h"
#include "backend/workspace.h"
#include "base/rng.h"
#include "nn/axis.h"
#include "tensor/tensor.h"

enum { TT_PYRAMID_LEVELS = 5, TT_ANCHORS_EACH = 9, TT_ATTACHMENTS_MAX = 4, TT_DEVICE_COLUMNS_MAX = 8 };

enum tt_attachment_kind { TT_ATTACHED_IMAGES = 1 };

/* The boxes of attached images, for the losses of a detector (backend/ops/detection.h). */
struct tt_device_boxes {
    tt_tensor boxes_M4, labels_M, offsets;
    /* of the canvas: five levels, nine at each place; empty: no losses are asked for */
    tt_tensor anchors_A4;
    float weight; /* of an image's loss: 1 / images of the global step */
};

/* An input of a micro batch beside its tokens, in device memory. A kind that reads more than images adds members. */
struct tt_attachment {
    enum tt_attachment_kind kind;
    int64_t count;         /* images; 0: the rank has none, and joins the sums of the pass */
    int64_t height, width; /* of all images: the canvas */
    tt_tensor pixels_PC;   /* the compute type, channels beyond red, green and blue are 0 */
    struct tt_device_boxes boxes;
};

/* Named values beside the tokens, one for each token, row, sequence or group of them. */
struct tt_device_column {
    const char *name;
    tt_tensor values; /* f32 */
};

/* The keys of sequences that begin with tokens of others (data/fold.h): each sequence has those of all its tokens, M
 * keys in all. Empty tensors: every token belongs to one sequence. */
struct tt_branches {
    int64_t key_count;           /* M */
    const int32_t *host_cu_keys; /* [B + 1] */
    tt_tensor cu_keys;           /* i32 [B + 1] */
    tt_tensor key_tokens_M;      /* i32: the token that a key is of */
    tt_tensor token_keys_TS;     /* i32: the keys of each token, at most S, rising, then M */
    tt_tensor own_keys_T;        /* i32: the first of these, rising */
    bool whole;                  /* attention of whole sequences is faster than that of their own tokens */
};

/* A micro batch in device memory: T tokens of B concatenated sequences, and attachments. */
struct tt_device_batch {
    int64_t token_count;    /* T, may be 0 */
    int64_t sequence_count; /* B */
    int64_t max_length;     /* of a sequence */
    tt_tensor ids_T;        /* i32 */
    /* i32: the rows of the rotations' tables, by the position in the sequence (plus the tokens in the cache) and by the
     * length of the sequence (struct tt_rope_parts of model/model.h) */
    tt_tensor rope_rows_T;
    /* i64: identity of the token for dropout: (sample << 24) | position in the sample */
    tt_tensor row_keys_T;
    tt_tensor cu_seqlens; /* i32 [B + 1] */
    const int32_t *host_cu_seqlens;
    struct tt_branches branches; /* cu_seqlens are then borders of the tokens that are a sequence's own */
    int64_t row_count;           /* N: rows with a label */
    tt_tensor rows_N;            /* i32, increasing: the tokens with a label */
    tt_tensor labels_N;          /* i32: the token that follows row rows_N[n] */
    struct tt_device_column columns[TT_DEVICE_COLUMNS_MAX]; /* those that the objective or a block asks for */
    int column_count;
    struct tt_attachment attachments[TT_ATTACHMENTS_MAX];
    int attachment_count;
};

/* The values of a column; empty: nobody has asked for it. */
tt_tensor tt_device_batch_column(const struct tt_device_batch *batch, const char *name);
/* The first attachment of a kind; NULL: there is none. */
static inline const struct tt_attachment *tt_device_batch_find(const struct tt_device_batch *batch,
                                                               enum tt_attachment_kind kind)
{
    for (int i = 0; i < batch->attachment_count; i++)
        if (batch->attachments[i].kind == kind) return &batch->attachments[i];
    return NULL;
}

/* Nothing to compute, neither tokens nor attachments: the pass is made for the calls that all ranks make. */
static inline bool tt_device_batch_is_empty(const struct tt_device_batch *batch)
{
    for (int i = 0; i < batch->attachment_count; i++)
        if (batch->attachments[i].count > 0) return false;
    return batch->token_count == 0;
}

/* Keys and values of earlier tokens of B sequences, for generation. Owned by nn/kv_cache.c. */
struct tt_kv_cache;

/* The results that a block's forward keeps for its backward; all others are recomputed. Results are the same bits at
 * every level. */
enum tt_level {
    TT_KEEP_ALL, /* all inputs of backward */
    /* all but the results of cheap element-wise ops: normed inputs, the MLP's activation */
    TT_KEEP_CHEAP,
    TT_RECOMPUTE_BLOCK,   /* only the block's input: the block is recomputed before its backward */
    TT_RECOMPUTE_OFFLOAD, /* the same, with the input in page-locked host memory */
    TT_LEVEL_COUNT
};
/* "none", "cheap", "block", "offload": the recomputed part */
const char *tt_level_name(enum tt_level level);

/* The ranks of a group send rows to each other. */
struct tt_all_to_all {
    tt_tensor send; /* the rows for the first rank of the group, then those for the second, ... */
    tt_tensor recv; /* the rows from the first, then those from the second, ...; shares no memory with send */
    /* host memory, [size of the group]: of each rank; two ranks give the same number for the rows between them */
    const int64_t *send_rows, *recv_rows;
};

/* This rank's place in its group along an axis. */
struct tt_exchange_group {
    int rank, size; /* 0 of 1: it is alone, and need not ask */
};

/* Requests of a block to the engine, which moves data between ranks meanwhile. A member that is NULL is not called. A
 * request along an axis is made by all ranks of the group, in the same order, also by those without tokens or images;
 * tensors are contiguous device memory, and later work on the stream of the pass sees the result. */
struct tt_exchange {
    /* The next op computes much and moves little (attention): a good time to start transfers beside it. */
    tt_status (*quiet)(void *context);
    /* The running block's matrix (`split` of its ops) comes in parts: only the rows of the part that was taken last are
     * its value. Takes part 0 <= `part` < part_count, and starts the transfer of part `next`, which is taken next; -1:
     * none. All ranks must take the same parts in the same order, also those without tokens. */
    tt_status (*take_part)(void *context, int part, int next);
    /* Adds the values (f32, bf16, f64 or i64) of the group, in place. Over GPUs of one process f32 and bf16 only. */
    tt_status (*sum)(void *context, enum tt_axis axis, tt_tensor values);
    /* all = the values of the first rank of the group, then those of the second, ...: as many of each. */
    tt_status (*gather)(void *context, enum tt_axis axis, tt_tensor values, tt_tensor all);
    tt_status (*all_to_all)(void *context, enum tt_axis axis, const struct tt_all_to_all *rows);
    struct tt_exchange_group groups[TT_AXES_MAX];
    int part_count;     /* 0: the matrix is whole */
    int64_t part_rows;  /* of all parts but the last */
    int64_t batch_rows; /* rows with a label: the most that a micro batch of any rank has */
    void *context;
    int64_t batch_tokens; /* as batch_rows, of tokens */
};

enum { TT_PASS_ROPES = 2 };

/* Rotary angles: f32 [rows, rotated columns / 2], device memory. */
struct tt_rope_table {
    tt_tensor cos_PE, sin_PE;
};

/* A side value (nn/side.h) in this pass; empty tensors: it has none. */
struct tt_side_value {
    tt_tensor value_TC; /* the compute type */
    tt_tensor grad_TC;  /* f32: the sum of its readers' gradients */
};

/* The load of the experts of all layers in a pass, and its gradient, for the loss that balances them (ops/route.h). */
struct tt_balance {
    tt_tensor load_2X; /* f32, to which forward adds; not when it runs again */
    tt_tensor dload_X; /* f32: written between forward and backward */
};

/* Lent for the duration of the pass. */
struct tt_pass_services {
    struct tt_stream *stream;
    struct tt_workspace *workspace;
    struct tt_kv_cache *cache;                 /* NULL in training */
    const struct tt_exchange *exchange;        /* NULL: no transfers to start */
    struct tt_rope_table ropes[TT_PASS_ROPES]; /* a layer names its own */
    const struct tt_side_value *sides;         /* by index of struct tt_side; NULL: the model has none */
    struct tt_balance balance;                 /* empty: no such loss */
};

/* Several adapters lie side by side in A and B of every linear (nn/linear.h): those of which the pass has rows. A
 * zeroed struct: there is one, and all rows have it. */
struct tt_pass_adapters {
    int64_t first, count; /* the numbers of those that any row has; count 0: all */
    bool mixed;           /* rows have one of several, or none */
    tt_tensor of_T, of_N; /* i32: the number of each token's, of each row with a label; -1: none */
};

struct tt_pass_inputs {
    const struct tt_device_batch *batch;
    tt_dtype compute_dtype; /* of activations: F32 or BF16 */
    bool training;          /* dropout on */
    bool gradient;          /* a backward pass follows: keep its inputs */
    bool want_logits;       /* logits_NV instead of a loss; labels are not read */
    enum tt_level level;    /* with gradient: of the current block, KEEP_ALL or KEEP_CHEAP */
    /* The block runs forward once more for its backward: it makes again what backward reads, and nothing for others. */
    bool again;
    /* derived from (seed, optimizer step); blocks derive their own by parameter name */
    struct tt_rng dropout_rng;
    /* The pass of a reference model: adapters add nothing. Without `gradient` only. */
    bool adapters_off;
    struct tt_pass_adapters adapters; /* without `gradient` only */
    float loss_scale;                 /* 1 / supervised tokens of the global step */
    /* Empty, or f32, [rows]: the scale of each row's gradient instead of loss_scale. */
    tt_tensor scale_N;
    /* scale_N is written between forward and backward, from the losses of all rows: the gradient waits for backward. */
    bool scales_follow;
    bool want_squares;    /* the head gives TT_RESULT_SQUARES */
    tt_tensor dscores_BL; /* f32: the gradient of the scores, written between forward and backward */
    float label_smoothing;
    float embedding_noise; /* in training: alpha of the noise on embeddings (backend/ops/noise.h); 0: none */
};

/* Names of the results that floors above read. A head's, one for each row with a label: */
#define TT_RESULT_LOSS "loss_N"       /* f32: -log p of the label where label_smoothing is 0 */
#define TT_RESULT_CORRECT "correct_N" /* i32: 1 where the label has the largest logit */
#define TT_RESULT_ENTROPY "entropy_N" /* f32 */
#define TT_RESULT_MEAN "mean_N"       /* f32: the mean of the logits; only with scales_follow */
#define TT_RESULT_SQUARES "squares_N" /* f32: log sum_v p[v]^2 of the prediction; only with want_squares */
#define TT_RESULT_LOGITS "logits_NV"  /* f32; only with want_logits, and then alone */
#define TT_RESULT_SCORES                                                                                     \
    "scores_BL" /* f32: of each sequence; of a head with scores, which gives nothing else */
/* A detector's, only with want_logits, one part for each level: rows of places, columns anchor * K + class and
 * anchor * 4 + side. */
#define TT_RESULT_CLASSES "class_logits"
#define TT_RESULT_BOXES "box_deltas"
/* Names of sums: the losses of rows, and a detector's weighted losses of all images. */
#define TT_SUM_LOSS "loss"
#define TT_SUM_CLASSIFICATION "classification"
#define TT_SUM_BOX_REGRESSION "bbox_regression"

enum { TT_RESULTS_MAX = 12, TT_PASS_SUMS_MAX = 8 };

struct tt_result {
    const char *name;
    int part; /* of several tensors of one name */
    tt_tensor value;
};

/* Results of a pass by name. */
struct tt_pass_results {
    struct tt_result slots[TT_RESULTS_MAX]; /* in the workspace: valid until the pass ends */
    int count;
    /* f64 [1], lent by the caller, who makes them 0 and adds up passes */
    struct tt_result sums[TT_PASS_SUMS_MAX];
    int sum_count;
};

struct tt_pass {
    struct tt_pass_services lent;
    struct tt_pass_inputs in;
    struct tt_pass_results *out;
};

/* A block's result, in the place of one of the same name and part. */
TT_MUST_USE tt_status tt_pass_give(const struct tt_pass *pass, const char *name, int part, tt_tensor value);
/* Empty: no block has given it. */
tt_tensor tt_pass_result(const struct tt_pass_results *results, const char *name, int part);
/* Lends blocks a number in device memory, to which they add. */
TT_MUST_USE tt_status tt_pass_lend_sum(struct tt_pass_results *results, const char *name, double *sum);
/* The sum, for a block that adds to it; empty: nobody reads it, or the block has added to it (`again`). */
tt_tensor tt_pass_sum(const struct tt_pass *pass, const char *name);

/* The images of a pass whose blocks read images. */
static inline const struct tt_attachment *tt_pass_images(const struct tt_pass *pass)
{
    return tt_device_batch_find(pass->in.batch, TT_ATTACHED_IMAGES);
}

#endif
