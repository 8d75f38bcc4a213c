/* The parts that the specification of a job is made of (job/spec.h). Floors above `job` take the parts that they need;
 * none below `planning` takes the whole. Names and defaults are those of TRL's SFTConfig and ModelConfig, and of
 * transformers' TrainingArguments. Other parts are declared by their owners: struct tt_lora_config (model/model.h),
 * tt_quantization_config (model/quantization.h), tt_data_config (data/dataset.h), tt_optim_config (optim/config.h). */
#ifndef TT_JOB_PARTS_H
#define TT_JOB_PARTS_H

#include <stddef.h>
#include <stdint.h>
#include "backend/tuning.h"
#include "model/model.h"
#include "model/scores.h"
#include "shard/unit.h"

enum tt_interval { TT_INTERVAL_NO, TT_INTERVAL_STEPS, TT_INTERVAL_EPOCH, TT_INTERVAL_BEST };

/* When the gather of the next block starts in backward: before this block's compute, after it, or not ahead. */
enum tt_prefetch { TT_PREFETCH_NONE, TT_PREFETCH_PRE, TT_PREFETCH_POST };

/* How much of the input files is compared between machines and with a checkpoint's (launch/fingerprint.h). */
enum tt_verify_inputs { TT_VERIFY_QUICK, TT_VERIFY_FULL };

/* Checks of the machines before a training (doctor/doctor.h). */
enum tt_preflight { TT_PREFLIGHT_OFF, TT_PREFLIGHT_QUICK };

/* The levels that the memory plan may choose for each block (engine/plan.h). */
enum tt_recompute {
    TT_RECOMPUTE_AUTO,          /* the fastest that fits */
    TT_RECOMPUTE_NONE,          /* TT_KEEP_ALL */
    TT_RECOMPUTE_CHEAP,         /* TT_KEEP_CHEAP */
    TT_RECOMPUTE_EVERY_BLOCK,   /* TT_RECOMPUTE_BLOCK */
    TT_RECOMPUTE_EVERY_OFFLOAD, /* TT_RECOMPUTE_OFFLOAD */
    /* TT_KEEP_ALL or TT_KEEP_CHEAP; not a word of the setting: gradient_checkpointing false */
    TT_RECOMPUTE_NO_BLOCK,
};

/* The words of settings, in the order of their rows. */
enum tt_init { TT_INIT_MODEL, TT_INIT_RANDOM }; /* weights from the folder; from random numbers */
enum tt_sampling { TT_SAMPLING_RANDOM, TT_SAMPLING_SEQUENTIAL, TT_SAMPLING_BY_LENGTH };
/* Bits of `report_to`; those of trackers follow, in the order of job/trackers.def. */
enum tt_report_to { TT_REPORT_TENSORBOARD = 1, TT_REPORT_NONE = 2, TT_REPORT_ALL = 4, TT_REPORT_TRACKER = 8 };
enum tt_save_error { TT_SAVE_ERROR_STOP, TT_SAVE_ERROR_CONTINUE };
enum tt_state_dict { TT_STATE_DICT_FULL, TT_STATE_DICT_SHARDED };
enum tt_save_type { TT_SAVE_AS_MODEL, TT_SAVE_FLOAT32, TT_SAVE_BFLOAT16, TT_SAVE_FLOAT16 };
enum tt_reduce_type { TT_REDUCE_FLOAT32, TT_REDUCE_BFLOAT16 };
enum tt_device_choice { TT_DEVICE_AUTO, TT_DEVICE_CPU, TT_DEVICE_CUDA };

/* TRL's ModelConfig. */
struct tt_model_spec {
    const char *model_name_or_path; /* a folder, or a name in the hub's cache */
    const char *model_revision;     /* of such a name; NULL: main */
    enum tt_init init;
    /* NULL, JSON lists or texts with commas: tokens for the tokenizer. */
    const char *add_tokens, *add_special_tokens;
    int64_t resize_to_multiple_of;    /* of the rows of a table that grows for them; 0: just as many */
    bool use_peft;                    /* default true here; false: full fine-tuning */
    const char *full_finetuning;      /* settled into use_peft */
    const char *adapter_name_or_path; /* NULL, or an adapter folder to start from */
    /* of a server: adapters that have a place, and their largest rank; 0: those of adapter_name_or_path alone */
    int64_t adapter_places, adapter_rank;
    double router_aux_loss_coef; /* of a training; -1: config.json's */
    struct tt_scores scores;     /* settled by the objective */
};

/* TrainingArguments: batches, and the length of the run. */
struct tt_run_spec {
    const char *output_dir;
    bool overwrite_output_dir;
    bool unlocked_store; /* a store that cannot lock output_dir is taken all the same */
    int64_t per_device_train_batch_size, per_device_eval_batch_size; /* 8, 8 */
    bool auto_find_batch_size;           /* the first of them is the most that is tried */
    int64_t gradient_accumulation_steps; /* 1 */
    double num_train_epochs;             /* 3 */
    int64_t max_steps;                   /* -1 */
    int64_t seed;                        /* 42 */
    int64_t data_seed;                   /* -1: seed */
    double label_smoothing_factor;
    double neftune_noise_alpha; /* 0: no noise on embeddings */
    enum tt_sampling train_sampling_strategy;
    bool group_by_length; /* another word for it; settled */
    bool dataloader_drop_last;
    /* NULL or "false": no; "true": the newest whole one of output_dir; a folder */
    const char *resume_from_checkpoint;
    bool resume_changed; /* go on though settings that matter have changed */
};

enum tt_hub_strategy { TT_HUB_END, TT_HUB_EVERY_SAVE, TT_HUB_CHECKPOINT, TT_HUB_ALL_CHECKPOINTS };

/* Logging, evaluation, saving. */
struct tt_watch_spec {
    enum tt_interval logging_strategy, eval_strategy, save_strategy;
    double logging_steps, eval_steps, save_steps; /* in (0, 1): a share of all steps */
    bool logging_first_step;
    bool eval_on_start;
    double eval_delay; /* steps, or of eval_strategy epoch epochs, before the first other evaluation */
    /* rows completed at each evaluation; tokens of each at most */
    int64_t eval_generate, eval_generate_tokens;
    int64_t save_total_limit; /* 0: keep all */
    bool save_only_model;
    bool load_best_model_at_end;
    const char *metric_for_best_model; /* NULL: none is asked for, which is the loss */
    const struct tt_metric *metric;    /* the metric of that name */
    int greater_is_better;             /* -1: as the metric has it */
    int64_t early_stopping_patience;   /* evaluations without improvement that end the run; 0: none do */
    double early_stopping_threshold;   /* less is no improvement */
    unsigned report_to;                /* bits of enum tt_report_to */
    int64_t tracker_seconds;           /* that trackers may take at the end of a run */
    const char *tracker_python;        /* what runs them */
    const char *project;               /* of Trackio; this and those below NULL: not given */
    const char *trackio_space_id, *trackio_bucket_id;
    bool push_to_hub, hub_private_repo;
    enum tt_hub_strategy hub_strategy;
    const char *hub_model_id;             /* NULL: the name of output_dir */
    const char *hub_revision, *hub_token; /* NULL: main; that of the environment */
    const char *logging_dir;              /* NULL: output_dir/runs */
    const char *run_name;
    bool disable_tqdm;
    bool log_sample; /* the first sample is shown before training */
    enum tt_save_error on_save_error;
    int64_t grace_seconds;        /* between SIGTERM and SIGKILL, for a warning; 0: not known */
    enum tt_save_type save_dtype; /* of full model folders */
    enum tt_state_dict state_dict_type;
};

/* The part of a run that others can see while it runs. */
struct tt_monitor_spec {
    int64_t metrics_port; /* of the first process of a machine; -1: no metrics */
    const char *metrics_host;
    bool dashboard;
    int64_t dashboard_port; /* 0: a free one */
    const char *dashboard_host;
    const char *allowed_hosts; /* of http/hosts.h */
    bool profile;
    const char *callbacks; /* JSON; settled into `profile` */
};

/* Where and in which type a rank computes. */
struct tt_device_spec {
    enum tt_device_choice choice; /* `device` */
    bool use_cpu;                 /* as device "cpu"; settled */
    const char *backend;          /* another word for the device; settled */
    int64_t threads;              /* cpu threads per rank; 0: processors / ranks */
    size_t device_memory;         /* bytes; 0: all of the device's, on cpus no limit */
    bool bf16, fp16;
    struct tt_device_tuning tuning;
};

/* The sharding of parameters, and the memory of a rank. */
struct tt_shard_spec {
    enum tt_shard_strategy sharding_strategy;
    enum tt_prefetch backward_prefetch;
    bool forward_prefetch;
    int64_t unsharded_blocks; /* -1: the plan chooses */
    int64_t expert_parallel;  /* ranks that share the experts of a layer; 0: the plan chooses */
    bool limit_all_gathers;   /* the host is at most two blocks ahead of a GPU (engine/lead.h) */
    enum tt_reduce_type reduce_dtype;
    bool offload_params;         /* frozen shards and optimizer state in host memory */
    int gradient_checkpointing;  /* -1: the plan chooses; 0: recompute no block; 1: every block */
    enum tt_recompute recompute; /* the same, exactly; AUTO: as gradient_checkpointing says */
    /* Other spellings; settled into the fields above and `bf16`. */
    bool activation_offloading, fsdp_activation_checkpointing;
    const char *use_gradient_checkpointing; /* settled into the two before */
    const char *fsdp_reshard_after_forward, *param_dtype, *fsdp, *fsdp_config;
};

/* Which ranks there are, and how they meet. */
struct tt_launch_spec {
    int64_t ranks;                      /* ranks of this process; 0: one per device (cpu: 1) */
    int64_t num_processes;              /* ranks of all machines; 0: not given */
    int64_t num_machines, machine_rank; /* 1, 0 */
    const char *main_process_ip;        /* NULL: not given */
    int64_t main_process_port;          /* 0: not given */
    int64_t rendezvous_timeout;         /* seconds; 300 */
    enum tt_preflight preflight;        /* checks of the machines before a training */
    const char *rendezvous_bind;        /* NULL: as the launch says */
    enum tt_verify_inputs verify_inputs;
};

/* How text is made, as people say it. */
struct tt_generate_config {
    int64_t max_new_tokens, top_k;
    double temperature, top_p; /* temperature 0: greedy */
    double min_p, repetition_penalty;
    /* -1: when temperature, top_k, top_p or min_p was given; settled by tt_generate_resolve */
    int do_sample;
    bool ignore_eos;
    bool chooses_sharding; /* no sharding_strategy was given: whole models where they fit */
    bool chooses_batch;    /* no per_device_eval_batch_size was given: by memory */
};

/* The meaning of `recompute` and `gradient_checkpointing` together. */
enum tt_recompute tt_job_recompute(const struct tt_shard_spec *shard);
/* The options of the model, but for its quantization. `lora`: the adapters of a training; NULL where the model is used
 * as it is, with the adapter that its inputs bring. */
struct tt_model_options tt_job_model_options(const struct tt_model_spec *model,
                                             const struct tt_lora_config *lora,
                                             const struct tt_device_spec *device, bool random_init);

#endif
