/* The specification of a job, resolved and checked (job/resolve.h): one frozen struct for each kind of job, made of the
 * same parts (job/parts.h). The rows that parse them stand beside their owners (model/settings.c, data/settings.c,
 * optim/settings.c, job/settings.c). Strings are owned by the settings store that filled the struct (config/settings.h)
 * and live as long as it does. */
#ifndef TT_JOB_SPEC_H
#define TT_JOB_SPEC_H

#include "data/dataset.h"
#include "job/detect_spec.h"
#include "job/parts.h"
#include "model/quantization.h"
#include "objective/objective.h"
#include "optim/config.h"

/* The objective of a language model. `values`: the settings of each objective (objective/objective.h). */
struct tt_objectives_spec {
    int objective; /* index in tt_objectives */
    double values[TT_OBJECTIVES][TT_OBJECTIVE_SETTINGS_MAX];
    const char *loss_type;    /* a word or a list as JSON; NULL: the objective's own */
    const char *loss_weights; /* a list as JSON; NULL: each is 1 */
    bool precompute_ref_log_probs;
    int64_t precompute_ref_batch_size; /* 0: that of the data */
};

/* A training; every other kind begins with one and leaves out what its settings do not fill. */
struct tt_job_spec {
    int task;                      /* place in job/tasks.def */
    struct tt_objective objective; /* settled by the task and `objectives` (job/objective_settings.c) */
    struct tt_objectives_spec objectives;
    struct tt_detect_spec detect; /* of a detection */
    struct tt_model_spec model;
    struct tt_lora_config lora;
    struct tt_quantization_config quantization;
    struct tt_data_config data;
    struct tt_optim_config optim;
    struct tt_run_spec run;
    struct tt_watch_spec watch;
    struct tt_monitor_spec monitor;
    struct tt_device_spec device;
    struct tt_shard_spec shard;
    struct tt_launch_spec launch;
};

struct tt_eval_spec {
    struct tt_job_spec job;
    bool exact_match; /* also complete the prompts greedily, and compare */
    int64_t max_new_tokens;
};

struct tt_generate_spec {
    struct tt_job_spec job;
    struct tt_generate_config generate;
};

struct tt_plan_spec {
    struct tt_job_spec job;
    const char *config_json;   /* a config.json; NULL: that of the folder model_name_or_path */
    int64_t sequence_length;   /* tokens of a row; 0: max_length */
    int64_t prompt_length;     /* of them the prompt's; 0: none */
    const char *device;        /* "auto", "cpu", "cuda", or a chip such as "h200" */
    int64_t generation_length; /* > 0: of generation, tokens of a sequence with its answer */
    int64_t num_classes;       /* of a detection, with the background; 0: not given */
    bool chooses_sharding;     /* no sharding_strategy was given */
    size_t network_bandwidth;  /* bytes a second that a rank receives from other machines; 0: by the chip */
    bool here; /* processors are planned with the memory and the number of those of this machine */
};

struct tt_bench_spec {
    struct tt_job_spec job;
    const char *config_json; /* a config.json */
    int64_t sequence_length; /* tokens of each row */
    /* 0: rows of sequence_length; else rows of such lengths, packed to it */
    int64_t row_tokens_min, row_tokens_max;
    int64_t steps, warmup, profile_steps; /* timed; before them; behind them, with a profile */
    /* of bench generate */
    int64_t prompt_tokens, new_tokens, rows;
    int64_t adapters, adapter_rank; /* `bench generate`: that rows have in turn, 0: none; their rank */
    double temperature;
    bool chooses_sharding; /* no sharding_strategy was given */
};

#endif
