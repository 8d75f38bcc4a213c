/* What a block sees of the world during one micro batch. Everything is lent by src/train for the length of the
 * pass. Nothing here knows of ranks. */
#ifndef TT_NN_STEP_H
#define TT_NN_STEP_H

#include "backend/device.h"
#include "backend/workspace.h"
#include "base/rng.h"
#include "tensor/tensor.h"

/* A micro batch in device memory: T tokens of B sequences, one after the other. Shapes in the names. */
struct tt_device_batch {
    int64_t token_count;    /* T, may be 0 */
    int64_t sequence_count; /* B */
    int64_t max_length;     /* of a sequence */
    tt_tensor ids_T;        /* i32 */
    tt_tensor positions_T;  /* i32, from 0 in each sequence (plus what the cache holds) */
    /* i64: identity of the token for dropout: (sample << 24) | position in the sample */
    tt_tensor row_keys_T;
    tt_tensor cu_seqlens; /* i32 [B + 1] */
    const int32_t *host_cu_seqlens;
    int64_t row_count;  /* N: rows with a label */
    tt_tensor rows_N;   /* i32, increasing: which tokens have a label */
    tt_tensor labels_N; /* i32: the token that follows row rows_N[n] */
};

/* Keys and values of earlier tokens of B sequences, for generation. Owned by nn/kv_cache.c. */
struct tt_kv_cache;

/* What a block's forward leaves for its backward: the less, the more is computed again. Results are the same bits at
 * every level. */
enum tt_level {
    TT_KEEP_ALL, /* everything that backward reads */
    /* not what element-wise ops make again at once: normed inputs, the MLP's activation */
    TT_KEEP_CHEAP,
    TT_RECOMPUTE_BLOCK,   /* only the block's input: the block runs again before its backward */
    TT_RECOMPUTE_OFFLOAD, /* not even that on the device: the input waits in page-locked host memory */
    TT_LEVEL_COUNT
};
/* "none", "cheap", "block", "offload": what is computed again */
const char *tt_level_name(enum tt_level level);

struct tt_step {
    struct tt_stream *stream;
    struct tt_workspace *workspace;
    const struct tt_device_batch *batch;
    tt_dtype compute_dtype; /* of activations: F32 or BF16 */
    bool training;          /* dropout on */
    bool gradient;          /* a backward pass follows: keep what it needs */
    enum tt_level level;    /* with gradient: of the block that runs, KEEP_ALL or KEEP_CHEAP */
    /* derived from (seed, optimizer step); blocks derive their own by parameter name */
    struct tt_rng dropout_rng;
    float loss_scale; /* 1 / supervised tokens of the global step */
    float label_smoothing;
    struct tt_kv_cache *cache; /* NULL in training */
    /* Called when the next op is attention, which computes much and reads little: the time to move other things. NULL:
     * nobody asks for that. */
    tt_status (*before_attention)(void *context);
    void *before_attention_context;
    tt_tensor rope_cos_PE, rope_sin_PE; /* f32 [positions, E/2], device memory */
    /* Results of the head, device memory, valid after its forward: f32, i32 and f32 [N]; from the workspace. */
    tt_tensor loss_N;
    tt_tensor correct_N;
    tt_tensor entropy_N;
    /* When want_logits: f32 [N, V] in the workspace instead of a loss (labels are not read). */
    bool want_logits;
    tt_tensor logits_NV;
};

#endif
