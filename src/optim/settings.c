#include "optim/settings.h"

#include <math.h>
#include <stddef.h>

#include "optim/config.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"

static const char spellings[] =
#define SPELLING(name, rule, bits, place) " " name
#define VARIANT(name, rule, bits, place)
#define REFUSED(name, instead)
#include "optim/spellings.def"
#undef SPELLING
#undef VARIANT
#undef REFUSED
    ;

static const char schedules[] =
#define SCHEDULE(name, keys, shape, warmup) " " name
#define REFUSED(name, instead)
#include "optim/schedules.def"
#undef SCHEDULE
#undef REFUSED
    ;

#define FIELD(member) .offset = offsetof(struct tt_optim_config, member)

/* One row is one paragraph. */
/* clang-format off */

/* Keys and defaults: transformers' TrainingArguments; learning_rate as TRL's SFTConfig sets it. */
const struct tt_setting tt_optim_settings[] = {
    {.name = "learning_rate", .aliases = "lr", .type = TT_SETTING_DOUBLE, FIELD(learning_rate),
     .default_text = "2e-5", .minimum = 0, .maximum = INFINITY, .changes = TT_CHANGES_RESULT,
     .help = "Learning rate at its peak, after the warm-up. The default is TRL's, for training all weights; usual for "
             "an adapter is about ten times as much, 2e-4. A detector's default is 0.01, with optim adamw 1e-4."},
    {.name = "lr_scheduler_type", .type = TT_SETTING_STRING, FIELD(lr_scheduler_type),
     .default_text = "linear", .null_text = "linear", .only = schedules + 1,
     .only_reason = "there is no other shape of the rate",
     .instead = tt_schedule_instead, .changes = TT_CHANGES_RESULT,
     .help = "Shape of the learning rate over the run: linear, cosine, constant, constant_with_warmup, "
             "cosine_with_restarts, polynomial, inverse_sqrt, cosine_with_min_lr, cosine_warmup_with_min_lr, "
             "warmup_stable_decay; multistep: gamma times less from each milestone on, as torchvision's detectors."},
    {.name = "lr_scheduler_kwargs", .type = TT_SETTING_JSON, FIELD(lr_scheduler_kwargs), .changes = TT_CHANGES_RESULT,
     .help = "Options of the schedule: {\"num_cycles\": 0.5}; of multistep: milestones (steps, or shares below 1) or "
             "milestone_epochs, gamma (0.1), warmup_factor (0.001: where warm-up begins)."},
    {.name = "warmup_steps", .type = TT_SETTING_DOUBLE, FIELD(warmup_steps), .default_text = "0",
     .null_text = "0", .minimum = 0, .maximum = INFINITY, .changes = TT_CHANGES_OTHER,
     .needs = "!lr_scheduler_type=constant",
     .help = "Steps over which the rate rises; below 1: a share of all steps."},
    {.name = "warmup_ratio", .type = TT_SETTING_DOUBLE, FIELD(warmup_ratio), .default_text = "0",
     .null_text = "0", .minimum = 0, .maximum = 1, .changes = TT_CHANGES_OTHER,
     .needs = "!warmup_steps+!lr_scheduler_type=constant",
     .help = "Warm-up as a share of all steps, where warmup_steps is 0."},
    {.name = "warmup_epochs", .aliases = "lr_warmup_epochs", .type = TT_SETTING_DOUBLE, FIELD(warmup_epochs),
     .default_text = "0", .null_text = "0", .minimum = 0, .maximum = INFINITY,
     .changes = TT_CHANGES_OTHER, .needs = "!warmup_steps+!warmup_ratio+!lr_scheduler_type=constant",
     .help = "Warm-up over so many epochs but for the last step of them, at most 1000 steps, where warmup_steps and "
             "warmup_ratio are 0. A detection without lr_scheduler_type: 1, as torchvision's references."},
    {.name = "weight_decay", .type = TT_SETTING_DOUBLE, FIELD(weight_decay), .default_text = "0",
     .minimum = 0, .maximum = INFINITY, .changes = TT_CHANGES_RESULT,
     .help = "Weight decay; with AdamW decoupled from the gradient, with SGD a part of it; not on norms and biases "
             "of language models, as transformers' Trainer."},
    {.name = "norm_weight_decay", .type = TT_SETTING_DOUBLE, FIELD(norm_weight_decay), .default_text = "-1",
     .null_text = "-1", .minimum = -1, .maximum = INFINITY, .changes = TT_CHANGES_RESULT_IF_SET, .of = "detection",
     .help = "Weight decay of a detector's norms that train, as torchvision's references; -1: weight_decay."},
    {.name = "loraplus_lr_ratio", .type = TT_SETTING_DOUBLE, FIELD(loraplus_lr_ratio), .default_text = "0",
     .null_text = "0", .minimum = 0, .maximum = INFINITY, .changes = TT_CHANGES_RESULT_IF_SET, .needs = "use_peft",
     .help = "LoRA+: the learning rate of lora_B and of vectors over learning_rate, which is that of lora_A, as in "
             "PEFT's create_loraplus_optimizer; 16 is usual; 0: one rate for all."},
    {.name = "embedding_learning_rate", .aliases = "embedding_lr", .type = TT_SETTING_DOUBLE, FIELD(embedding_lr),
     .default_text = "0", .null_text = "0", .minimum = 0, .maximum = INFINITY, .changes = TT_CHANGES_RESULT_IF_SET,
     .help = "Learning rate of embed_tokens and lm_head where they train; 0: learning_rate."},
    {.name = "embedding_lr_scale", .type = TT_SETTING_DOUBLE, FIELD(embedding_lr_scale), .default_text = "0",
     .null_text = "0", .minimum = 0, .maximum = INFINITY, .changes = TT_CHANGES_RESULT_IF_SET,
     .help = "The same as a share of learning_rate (axolotl's spelling); 0: not given."},
    {.name = "lr_groups", .type = TT_SETTING_JSON, FIELD(lr_groups), .changes = TT_CHANGES_RESULT_IF_SET,
     .help = "Rates by module, a list of {name, modules, lr} as axolotl's: a parameter whose name contains one "
             "of modules has the rate lr. The first group that names it counts."},
    {.name = "adam_beta1", .type = TT_SETTING_DOUBLE, FIELD(adam_beta1), .default_text = "0.9", .minimum = 0,
     .maximum = 0.9999999, .changes = TT_CHANGES_RESULT, .needs = "!optim=sgd", .help = "Decay of the first moment."},
    {.name = "adam_beta2", .type = TT_SETTING_DOUBLE, FIELD(adam_beta2), .default_text = "0.999",
     .minimum = 0, .maximum = 0.9999999, .changes = TT_CHANGES_RESULT, .needs = "!optim=sgd",
     .help = "Decay of the second moment."},
    {.name = "adam_epsilon", .type = TT_SETTING_DOUBLE, FIELD(adam_epsilon), .default_text = "1e-8",
     .minimum = 0, .maximum = 1, .changes = TT_CHANGES_RESULT,
     .needs = "!optim=sgd+!optim=lion_32bit+!optim=lion_8bit+!optim=paged_lion_32bit+!optim=paged_lion_8bit",
     .help = "Added to the root of the second moment."},
    {.name = "ns_steps", .type = TT_SETTING_INT, FIELD(ns_steps), .default_text = "5", .null_text = "5", .minimum = 1,
     .maximum = 99, .changes = TT_CHANGES_RESULT_IF_SET, .needs = "optim=muon",
     .help = "Muon: steps of the Newton-Schulz iteration."},
    {.name = "ns_coefficients", .type = TT_SETTING_JSON, FIELD(ns_coefficients), .changes = TT_CHANGES_RESULT_IF_SET,
     .needs = "optim=muon",
     .help = "Muon: the iteration's coefficients; not given: [3.4445, -4.775, 2.0315], torch's."},
    {.name = "ns_epsilon", .type = TT_SETTING_DOUBLE, FIELD(ns_epsilon), .default_text = "1e-7", .null_text = "1e-7",
     .minimum = 1e-30, .maximum = 1, .changes = TT_CHANGES_RESULT_IF_SET, .needs = "optim=muon",
     .help = "Muon: the least norm that a matrix is divided by."},
    {.name = "ns_dtype", .type = TT_SETTING_CHOICE, FIELD(ns_dtype), .default_text = "bfloat16",
     .null_text = "bfloat16", .choices = "bfloat16 float32", .synonyms = "bf16=bfloat16 fp32=float32",
     .changes = TT_CHANGES_RESULT_IF_SET, .needs = "optim=muon",
     .help = "Muon: the type of the iteration; torch has bfloat16 always."},
    {.name = "adjust_lr_fn", .type = TT_SETTING_CHOICE, FIELD(adjust_lr_fn), .default_text = "original",
     .null_text = "original", .choices = "original match_rms_adamw spectral_unclamped",
     .changes = TT_CHANGES_RESULT_IF_SET, .needs = "optim=muon",
     .help = "Muon: the rate of a matrix of R x C over learning_rate. original: sqrt(max(1, R / C)); match_rms_adamw: "
             "0.2 sqrt(max(R, C)), for rates of AdamW; spectral_unclamped: sqrt(R / C)."},
    {.name = "momentum", .type = TT_SETTING_DOUBLE, FIELD(momentum), .default_text = "0", .null_text = "0",
     .minimum = 0, .maximum = 0.9999999, .changes = TT_CHANGES_RESULT_IF_SET,
     .help = "Momentum of optim sgd: v = momentum v + gradient; 0: none, and no optimizer state. Of muon, whose "
             "default is 0.95: v = momentum v + (1 - momentum) gradient."},
    {.name = "nesterov", .type = TT_SETTING_BOOL, FIELD(nesterov), .default_text = "false", .changes = TT_CHANGES_OTHER,
     .help = "Nesterov's form of momentum; on by default with optim muon."},
    {.name = "max_grad_norm", .type = TT_SETTING_DOUBLE, FIELD(max_grad_norm), .default_text = "1",
     .null_text = "0", .minimum = 0, .maximum = INFINITY, .changes = TT_CHANGES_RESULT,
     .help = "Largest norm of the gradient over all ranks; larger gradients are scaled down; 0: never."},
    {.name = "optim", .type = TT_SETTING_STRING, FIELD(optim), .default_text = "adamw_torch_fused",
     .only = spellings + 1,
     .only_reason = "rules of other names would train differently", .instead = tt_optimizer_instead,
     .changes = TT_CHANGES_RESULT,
     .help = "Optimizer: AdamW, Lion, muon or sgd (momentum, nesterov). 8bit: moments in 8 bits, a quarter of the "
             "memory, as bitsandbytes; paged: moments in host memory where the plan needs it."},
    {.name = NULL},
};
