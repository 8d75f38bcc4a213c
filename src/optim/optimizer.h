/* Update rules, and the values of `optim` that choose among them. Independent of model and rank: the input of an update
 * is a run of elements with the same weight decay. A rule is one file in optim/rules/ and one line in rules.def; a
 * value of `optim` is one line in spellings.def. The memory of a rank's state is in optim/moments.h. */
#ifndef TT_OPTIM_OPTIMIZER_H
#define TT_OPTIM_OPTIMIZER_H

#include "backend/device.h"
#include "optim/config.h"
#include "tensor/param.h"

enum {
    TT_MOMENTS_MAX = 2,
    /* bitsandbytes: tensors with fewer elements keep moments of 32 bits (min_8bit_size) */
    TT_CODED_COUNT_MIN = 4096,
};

/* A run of elements with one weight decay, and its state. */
struct tt_optimizer_update {
    float *master; /* [count], as grad */
    const float *grad;
    int64_t count;
    bool coded;                    /* the moments have 8 bits */
    float *values[TT_MOMENTS_MAX]; /* [count] each, or: */
    /* [count], and a size for each TT_MOMENT_BLOCK of them (backend/ops/optim.h); a run begins with a block */
    uint8_t *codes[TT_MOMENTS_MAX];
    float *absmax[TT_MOMENTS_MAX];
    double lr, weight_decay;
    float grad_scale; /* the clipping coefficient */
    int64_t step;     /* from 1 */
};

/* A rule that needs whole matrices. Each rank makes the directions of its slices, and applies the slices of the turned
 * matrices; between them somebody turns each whole matrix, the same wherever it is done (engine/whole.h). */
struct tt_workspace;
struct tt_whole_rule {
    const char *prefix; /* of its one moment, as below */
    bool (*takes)(const tt_param *param);
    tt_dtype (*dtype)(const struct tt_optim_config *config); /* of directions: F32 or BF16 */
    /* Updates the moment, and writes the direction to y [count]. */
    tt_status (*direct)(struct tt_stream *stream, const struct tt_optim_config *config,
                        const struct tt_optimizer_update *update, tt_tensor y);
    /* A whole matrix of directions, in place. */
    tt_status (*turn)(struct tt_stream *stream, const struct tt_optim_config *config,
                      struct tt_workspace *workspace, tt_tensor x_RC);
    tt_status (*apply)(struct tt_stream *stream, const struct tt_optim_config *config,
                       const struct tt_optimizer_update *update, const tt_param *param, tt_tensor x);
};

struct tt_rule {
    const char *name; /* "AdamW" */
    int moment_count; /* values that it keeps for each element */
    /* before the parameter's name in a checkpoint: "optimizer.exp_avg."; the last part is torch's name of the value */
    const char *prefixes[TT_MOMENTS_MAX];
    /* its settings are momentum and nesterov: without `whole` in place of adam_beta1, adam_beta2 and adam_epsilon */
    bool has_momentum;
    bool (*fits)(const struct tt_optim_config *config);       /* NULL: any configuration */
    tt_status (*check)(const struct tt_optim_config *config); /* of its own settings; NULL: it has none */
    /* NULL, or the rule of some parameters; `update` is that of all others */
    const struct tt_whole_rule *whole;
    tt_status (*update)(struct tt_stream *stream, const struct tt_optim_config *config,
                        const struct tt_optimizer_update *update);
};
#define RULE(name) extern const struct tt_rule tt_rule_##name;
#include "optim/rules.def"
#undef RULE

enum tt_moment_bits { TT_MOMENT_32, TT_MOMENT_8 };
enum tt_moment_place { TT_MOMENT_RESIDENT, TT_MOMENT_PAGED };
struct tt_optimizer {
    const char *spelling; /* the value of `optim` */
    const struct tt_rule *rule;
    enum tt_moment_bits bits;
    enum tt_moment_place place; /* PAGED: the plan may place the moments in host memory */
};
/* The optimizer of a configuration. NULL, or a configuration without `optim`: the first of spellings.def. */
const struct tt_optimizer *tt_optimizer_of(const struct tt_optim_config *config);
/* The first of spellings.def with the same rule and these moments; NULL: there is none. */
const struct tt_optimizer *tt_optimizer_like(const struct tt_optimizer *optimizer, enum tt_moment_bits bits,
                                             enum tt_moment_place place);
/* Two spellings of one rule with moments of as many bits: the updates are the same bits, wherever the moments lie. */
bool tt_optimizer_is_same(const char *spelling, const char *other);
/* Refuses settings of another rule than `optim`. */
TT_MUST_USE tt_status tt_optimizer_check(const struct tt_optim_config *config);
/* Not NULL for a value of transformers' OptimizerNames that has no rule here: the reason and what to write instead. */
const char *tt_optimizer_instead(const char *spelling);

/* The parameter is updated as a whole matrix (tt_whole_rule). */
static inline bool tt_optimizer_takes_whole(const struct tt_optimizer *optimizer, const tt_param *param)
{
    const struct tt_whole_rule *whole = optimizer->rule->whole;
    return whole != NULL && whole->takes(param);
}
/* Values that the optimizer keeps for each element of the parameter. */
int tt_optimizer_moments(const struct tt_optimizer *optimizer, const tt_param *param);
/* Moments of this parameter have 8 bits. As with transformers' Trainer and bitsandbytes, tensors below
 * TT_CODED_COUNT_MIN elements and the table of token embeddings keep 32 bits. */
bool tt_optimizer_codes(const struct tt_optimizer *optimizer, const tt_param *param);
/* Elements at whose multiples parameters and shards must begin. */
int64_t tt_optimizer_alignment(const struct tt_optimizer *optimizer);

/* A tensor of the state of one parameter. Values 0 .. TT_MOMENTS_MAX - 1 are moments, or their codes; those that follow
 * are the sizes of the codes' blocks. */
enum { TT_STATE_VALUES = 2 * TT_MOMENTS_MAX };
struct tt_state_value {
    const char *prefix; /* of its name, before the parameter's */
    tt_dtype dtype;
    int64_t block; /* elements of the parameter for one of this tensor */
};
/* False: the parameter has no such value. */
bool tt_optimizer_value(const struct tt_optimizer *optimizer, const tt_param *param, int index,
                        struct tt_state_value *value);

#endif
