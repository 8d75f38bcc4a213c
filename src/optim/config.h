/* Settings of the optimizer; names and defaults of transformers' TrainingArguments as changed by TRL's SFTConfig. Their
 * table rows are in optim/settings.c. */
#ifndef TT_OPTIM_CONFIG_H
#define TT_OPTIM_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

enum tt_ns_dtype { TT_NS_BFLOAT16, TT_NS_FLOAT32 };
enum tt_adjust_lr { TT_ADJUST_ORIGINAL, TT_ADJUST_MATCH_RMS, TT_ADJUST_SPECTRAL };

struct tt_optim_config {
    /* "adamw_torch_fused", or another word of optim/spellings.def */
    const char *optim;
    double learning_rate;            /* 2e-5 */
    const char *lr_scheduler_type;   /* "linear" */
    const char *lr_scheduler_kwargs; /* NULL or JSON object as text */
    double warmup_steps;             /* 0; in (0, 1): a ratio */
    double warmup_ratio;             /* 0 */
    double warmup_epochs;            /* 0; used where both are 0 */
    double weight_decay;             /* 0 */
    double norm_weight_decay;        /* of a detector's norms; -1: weight_decay */
    double adam_beta1, adam_beta2, adam_epsilon;
    double momentum;      /* of sgd; 0; of muon; 0.95 */
    bool nesterov;        /* of sgd, of muon */
    double max_grad_norm; /* 1; 0: no clipping */
    /* Settings of muon (optim/rules/muon.c). */
    int64_t ns_steps;            /* 5 */
    const char *ns_coefficients; /* NULL: torch's; or a JSON list of three as text */
    double ns_epsilon;           /* 1e-7 */
    int ns_dtype;                /* enum tt_ns_dtype */
    int adjust_lr_fn;            /* enum tt_adjust_lr */
    /* Parameter groups (optim/groups.h). */
    double loraplus_lr_ratio;  /* 0: no LoRA+ */
    double embedding_lr;       /* 0: learning_rate */
    double embedding_lr_scale; /* of learning_rate; 0: not given */
    const char *lr_groups;     /* NULL or a JSON list as text */
};

#endif
