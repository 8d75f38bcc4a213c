#include "job/settings.h"

#include <math.h>
#include <stddef.h>

#define FIELD(member) .offset = offsetof(struct tt_job_spec, member)

/* One row reads as one paragraph. */
/* clang-format off */

const struct tt_setting tt_model_settings[] = {
    {.name = "model_name_or_path", .aliases = "model_name model", .type = TT_SETTING_STRING,
     FIELD(model.model_name_or_path), .required = true, .or_else = "config_json task",
     .path = TT_PATH_HUB, .of = "language",
     .help = "Folder with config.json, the weights as safetensors, and the tokenizer; or the name of a model of the "
             "hub (owner/name)."},
    {.name = "adapter_name_or_path", .aliases = "adapter adapter_path", .type = TT_SETTING_STRING,
     FIELD(model.adapter_name_or_path), .path = TT_PATH_HUB, .of = "language",
     .help = "PEFT adapter folder to start from, or the name of one of the hub. generate, chat and serve take "
             "several, separated by commas."},
    {.name = "model_init_kwargs", .type = TT_SETTING_JSON, .offset = TT_SETTING_NO_FIELD, .transient = true,
     .spread = "use_cache attn_implementation dtype torch_dtype trust_remote_code low_cpu_mem_usage device_map "
               "use_kernels use_flash_attention_2",
     .help = "A mapping whose keys count as if they stood in its place: dtype, attn_implementation, use_cache and the "
             "like. A model is built from its config.json: other changes are made there."},
    {.name = "model_revision", .type = TT_SETTING_STRING, FIELD(model.model_revision), .default_text = "main",
     .of = "language",
     .help = "Branch, tag or commit of a model of the hub."},
    {.name = NULL},
};

const struct tt_setting tt_run_settings[] = {
    {.name = "output_dir", .type = TT_SETTING_STRING, FIELD(run.output_dir), .default_text = "trainer_output",
     .path = TT_PATH_WRITE, .changes = TT_CHANGES_PLACE,
     .help = "Folder for the result, checkpoints and records."},
    {.name = "overwrite_output_dir", .type = TT_SETTING_BOOL, FIELD(run.overwrite_output_dir),
     .default_text = "false", .changes = TT_CHANGES_PLACE, .help = "Allow an output_dir that already holds a result."},
    {.name = "unlocked_store", .type = TT_SETTING_BOOL, FIELD(run.unlocked_store), .default_text = "false",
     .changes = TT_CHANGES_PLACE,
     .help = "Write an output_dir of s3:// also where its server cannot lock it against a second run (it ignores "
             "If-None-Match)."},
    {.name = "init", .type = TT_SETTING_CHOICE, FIELD(model.init), .default_text = "model", .null_text = "model",
     .choices = "model random", .changes = TT_CHANGES_RESULT, .of = "language",
     .help = "model: weights from the folder; random: train from scratch."},
    {.name = "use_peft", .type = TT_SETTING_BOOL, FIELD(model.use_peft), .default_text = "true",
     .changes = TT_CHANGES_RESULT,
     .help = "true: train a LoRA adapter; false: train every weight."},
    {.name = "full_finetuning", .type = TT_SETTING_STRING, FIELD(model.full_finetuning),
     .means = "true=use_peft:false false=use_peft:true", .only_reason = "it takes true or false",
     .changes = TT_CHANGES_OTHER, .help = "Unsloth's spelling: true is use_peft: false."},
    {.name = "per_device_train_batch_size", .aliases = "batch_size per_gpu_train_batch_size",
     .type = TT_SETTING_INT, FIELD(run.per_device_train_batch_size), .default_text = "8", .minimum = 1,
     .maximum = 1 << 20, .changes = TT_CHANGES_OTHER,
     .help = "Samples (packs, when packing) of one rank in one micro step."},
    {.name = "per_device_eval_batch_size", .aliases = "per_gpu_eval_batch_size", .type = TT_SETTING_INT,
     FIELD(run.per_device_eval_batch_size), .default_text = "8", .minimum = 1, .maximum = 1 << 20,
     .changes = TT_CHANGES_OTHER,
     .help = "The same for evaluation."},
    {.name = "gradient_accumulation_steps", .aliases = "accum_steps",
     .type = TT_SETTING_INT, FIELD(run.gradient_accumulation_steps),
     .default_text = "1", .minimum = 1, .maximum = 1 << 20, .changes = TT_CHANGES_OTHER,
     .help = "Micro steps that make one optimizer step."},
    {.name = "num_train_epochs", .aliases = "epochs",
     .type = TT_SETTING_DOUBLE, FIELD(run.num_train_epochs), .default_text = "3",
     .minimum = 0, .maximum = INFINITY, .changes = TT_CHANGES_OTHER,
     .help = "Passes over the training data; may be a fraction."},
    {.name = "max_steps", .type = TT_SETTING_INT, FIELD(run.max_steps), .default_text = "-1", .null_text = "-1",
     .minimum = -1, .maximum = INFINITY, .changes = TT_CHANGES_OTHER,
     .help = "Optimizer steps; overrides num_train_epochs; -1: by epochs."},
    {.name = "seed", .type = TT_SETTING_INT, FIELD(run.seed), .default_text = "42", .minimum = 0,
     .maximum = INFINITY, .changes = TT_CHANGES_RESULT, .help = "Seed of adapter init, dropout and data order."},
    {.name = "data_seed", .type = TT_SETTING_INT, FIELD(run.data_seed), .default_text = "-1", .null_text = "-1",
     .minimum = -1, .maximum = INFINITY, .changes = TT_CHANGES_OTHER, .help = "Seed of the data order; -1: seed."},
    {.name = "fsdp_activation_checkpointing", .type = TT_SETTING_BOOL, FIELD(shard.fsdp_activation_checkpointing),
     .default_text = "false", .means = "true=gradient_checkpointing:true", .changes = TT_CHANGES_OTHER,
     .help = "accelerate's spelling: true is gradient_checkpointing: true."},
    {.name = "gradient_checkpointing", .aliases = "activation_checkpointing", .type = TT_SETTING_TRISTATE,
     FIELD(shard.gradient_checkpointing), .changes = TT_CHANGES_OTHER, .needs = "recompute=auto",
     .help = "true: keep only the inputs of the blocks and recompute the rest in backward; false: keep all; null: the "
             "memory plan chooses for each block."},
    {.name = "recompute", .type = TT_SETTING_CHOICE, FIELD(shard.recompute), .default_text = "auto",
     .choices = "auto none cheap block offload", .changes = TT_CHANGES_OTHER,
     .help = "Recomputation in backward: none; cheap: element-wise results; block: whole blocks; offload: whole "
             "blocks, with their inputs kept in host memory; auto: by gradient_checkpointing."},
    {.name = "activation_offloading", .aliases = "fsdp_activation_checkpointing_offload", .type = TT_SETTING_BOOL,
     FIELD(shard.activation_offloading), .default_text = "false", .means = "true=recompute:offload",
     .changes = TT_CHANGES_OTHER,
     .help = "The same as recompute: offload."},
    {.name = "use_gradient_checkpointing", .type = TT_SETTING_STRING, FIELD(shard.use_gradient_checkpointing),
     .means = "unsloth=recompute:offload true=gradient_checkpointing:true false=gradient_checkpointing:false",
     .only_reason = "it takes one of unsloth, true, false", .changes = TT_CHANGES_OTHER,
     .help = "Unsloth's spelling of gradient_checkpointing; unsloth is recompute: offload."},
    {.name = "label_smoothing_factor", .type = TT_SETTING_DOUBLE, FIELD(run.label_smoothing_factor),
     .default_text = "0", .minimum = 0, .maximum = 0.9999999, .changes = TT_CHANGES_RESULT, .of = "sft",
     .help = "Share of the target probability that is spread over all tokens."},
    {.name = "neftune_noise_alpha", .type = TT_SETTING_DOUBLE, FIELD(run.neftune_noise_alpha), .default_text = "0",
     .null_text = "0", .minimum = 0, .maximum = 1e6, .changes = TT_CHANGES_RESULT_IF_SET, .of = "language",
     .help = "NEFTune: in training, uniform noise of at most alpha / sqrt(tokens of the sequence x hidden size) on the "
             "embeddings of the tokens, usually with alpha 5 to 15; 0: none."},
    {.name = "router_aux_loss_coef", .type = TT_SETTING_DOUBLE, FIELD(model.router_aux_loss_coef),
     .default_text = "-1", .null_text = "-1", .minimum = -1, .maximum = 1e6,
     .changes = TT_CHANGES_RESULT_IF_SET, .of = "sft",
     .help = "Coefficient of the loss that balances the experts of a mixture; -1: that of the model's config.json; 0: "
             "no such loss."},
    {.name = "train_sampling_strategy", .type = TT_SETTING_CHOICE, FIELD(run.train_sampling_strategy),
     .default_text = "random", .null_text = "random", .choices = "random sequential group_by_length",
     .only_reason = "batch_rebalance is not needed: every batch is dealt out to ranks and micro batches by length",
     .changes = TT_CHANGES_RESULT, .of = "language",
     .help = "Order of the samples in an epoch; group_by_length: in random order, then by length within runs of 50 "
             "batches, so that those of a batch are about as long (not with packing, whose packs are)."},
    {.name = "group_by_length", .type = TT_SETTING_BOOL, FIELD(run.group_by_length), .default_text = "false",
     .means = "true=train_sampling_strategy:group_by_length", .changes = TT_CHANGES_OTHER, .of = "language",
     .help = "The same as train_sampling_strategy: group_by_length."},
    {.name = "accelerator_config", .type = TT_SETTING_JSON, .offset = TT_SETTING_NO_FIELD, .transient = true,
     .spread = "split_batches dispatch_batches even_batches use_seedable_sampler non_blocking "
               "gradient_accumulation_kwargs use_configured_state",
     .help = "transformers' AcceleratorConfig, a mapping whose keys count one by one: most have no effect, and "
             "split_batches must be off."},
    {.name = "dataloader_drop_last", .type = TT_SETTING_BOOL, FIELD(run.dataloader_drop_last),
     .default_text = "false", .changes = TT_CHANGES_RESULT, .of = "language",
     .help = "Drop the last step of an epoch if it is incomplete."},
    {.name = "resume_from_checkpoint", .type = TT_SETTING_STRING, FIELD(run.resume_from_checkpoint),
     .path = TT_PATH_READ, .path_words = "true yes last latest false no none", .changes = TT_CHANGES_PLACE,
     .help = "The checkpoint folder to resume from; true or latest: the newest whole checkpoint in output_dir, or the "
             "beginning if there is none."},
    {.name = "resume_changed", .type = TT_SETTING_BOOL, FIELD(run.resume_changed), .default_text = "false",
     .changes = TT_CHANGES_PLACE, .needs = "resume_from_checkpoint",
     .help = "Resume from a checkpoint even if settings that affect training have changed."},
    {.name = NULL},
};

#define INTERVALS "no steps epoch best"

const struct tt_setting tt_watch_settings[] = {
    {.name = "logging_strategy", .type = TT_SETTING_CHOICE, FIELD(watch.logging_strategy), .default_text = "steps",
     .choices = INTERVALS, .help = "When to write a log row."},
    {.name = "logging_steps", .aliases = "debug_freq",
     .type = TT_SETTING_DOUBLE, FIELD(watch.logging_steps), .default_text = "10",
     .minimum = 0, .maximum = INFINITY, .needs = "logging_strategy=steps eval_strategy=steps",
     .help = "Steps between log rows; below 1: a share of all steps."},
    {.name = "logging_first_step", .type = TT_SETTING_BOOL, FIELD(watch.logging_first_step),
     .default_text = "false", .help = "Also write a log row for the first step."},
    {.name = "eval_strategy", .aliases = "evaluation_strategy", .type = TT_SETTING_CHOICE,
     FIELD(watch.eval_strategy), .default_text = "no", .choices = INTERVALS,
     .help = "When to evaluate."},
    {.name = "eval_steps", .type = TT_SETTING_DOUBLE, FIELD(watch.eval_steps), .default_text = "0",
     .null_text = "0", .minimum = 0, .maximum = INFINITY, .needs = "eval_strategy=steps",
     .help = "Steps between evaluations; below 1: a share of all steps; 0: logging_steps."},
    {.name = "eval_delay", .type = TT_SETTING_DOUBLE, FIELD(watch.eval_delay), .default_text = "0", .null_text = "0",
     .minimum = 0, .maximum = INFINITY, .needs = "!eval_strategy=no",
     .help = "Steps, or with eval_strategy epoch epochs, before which nothing is evaluated but by eval_on_start."},
    {.name = "eval_on_start", .type = TT_SETTING_BOOL, FIELD(watch.eval_on_start), .default_text = "false",
     .needs = "!eval_strategy=no",
     .help = "Evaluate before the first step."},
    {.name = "eval_generate", .type = TT_SETTING_INT, FIELD(watch.eval_generate), .default_text = "0",
     .null_text = "0", .minimum = 0, .maximum = 1 << 16, .of = "language",
     .help = "Rows of the evaluation data that each evaluation also completes, greedily, and shows and records in "
             "generations.jsonl; 0: none."},
    {.name = "eval_generate_tokens", .type = TT_SETTING_INT, FIELD(watch.eval_generate_tokens),
     .default_text = "128", .minimum = 1, .maximum = 1 << 20, .of = "language", .needs = "eval_generate",
     .help = "Largest number of tokens of such a completion."},
    {.name = "save_strategy", .type = TT_SETTING_CHOICE, FIELD(watch.save_strategy), .default_text = "steps",
     .choices = INTERVALS,
     .help = "When to save a checkpoint; best: when the metric is the best so far."},
    {.name = "save_steps", .type = TT_SETTING_DOUBLE, FIELD(watch.save_steps), .default_text = "500", .minimum = 0,
     .maximum = INFINITY, .needs = "save_strategy=steps",
     .help = "Steps between checkpoints; below 1: a share of all steps."},
    {.name = "save_total_limit", .type = TT_SETTING_INT, FIELD(watch.save_total_limit), .default_text = "0",
     .null_text = "0", .minimum = 0, .maximum = INFINITY, .needs = "!save_strategy=no",
     .help = "Number of checkpoints to keep; the oldest are removed, the best is kept; 0: all."},
    {.name = "save_only_model", .type = TT_SETTING_BOOL, FIELD(watch.save_only_model), .default_text = "false",
     .needs = "!save_strategy=no",
     .help = "Save checkpoints without the training state, which a resume needs."},
    {.name = "on_save_error", .type = TT_SETTING_CHOICE, FIELD(watch.on_save_error),
     .default_text = "stop", .null_text = "stop",
     .choices = "stop continue",
     .help = "After a checkpoint that cannot be written (disk full, folder read-only): stop ends the run; continue "
             "logs a warning and trains until the next save."},
    {.name = "grace_seconds", .type = TT_SETTING_INT, FIELD(watch.grace_seconds), .default_text = "0",
     .minimum = 0, .maximum = 1 << 20, .local = true,
     .help = "Seconds between SIGTERM and SIGKILL where something sends both, as Kubernetes does; the run warns if a "
             "stop takes longer. 0: not known. trimtab render sets it."},
    {.name = "save_dtype", .type = TT_SETTING_CHOICE, FIELD(watch.save_dtype),
     .default_text = "model", .null_text = "model", .choices = "model float32 bfloat16 float16",
     .help = "Type of the saved weights; model: of a model folder the type in config.json, of an adapter float32."},
    {.name = "load_best_model_at_end", .type = TT_SETTING_BOOL, FIELD(watch.load_best_model_at_end),
     .default_text = "false", .help = "The result is the best checkpoint, not the last."},
    {.name = "metric_for_best_model", .type = TT_SETTING_STRING, FIELD(watch.metric_for_best_model),
     .changes = TT_CHANGES_RESULT, .needs = "!eval_strategy=no",
     .help = "Metric that decides which checkpoint is the best; not given: loss."},
    {.name = "greater_is_better", .type = TT_SETTING_TRISTATE, FIELD(watch.greater_is_better),
     .needs = "!eval_strategy=no",
     .help = "true: a greater metric is better; null: true unless the metric is a loss."},
    {.name = "early_stopping_patience", .type = TT_SETTING_INT, FIELD(watch.early_stopping_patience),
     .default_text = "0", .null_text = "0", .minimum = 0, .maximum = 1 << 20,
     .help = "Evaluations in a row without an improvement of metric_for_best_model after which training ends; 0: it "
             "goes on."},
    {.name = "early_stopping_threshold", .type = TT_SETTING_DOUBLE, FIELD(watch.early_stopping_threshold),
     .default_text = "0", .null_text = "0", .minimum = 0, .maximum = INFINITY,
     .help = "An improvement must be larger than this."},
    {.name = "report_to", .type = TT_SETTING_WORDS, FIELD(watch.report_to),
     .default_text = "tensorboard", .null_text = "tensorboard",
#define TRACKER(word, ...) " " word
     .choices = "tensorboard none all"
#include "job/trackers.def"
     ,
#undef TRACKER
     .only_reason = "other trackers can be fed from metrics.jsonl, which is always written",
     .help = "One or a list. tensorboard (or all): event files beside metrics.jsonl; none: metrics.jsonl alone; "
             "others: the tracker whose Python package is installed gets the rows too."},
    {.name = "tracker_seconds", .type = TT_SETTING_INT, FIELD(watch.tracker_seconds), .default_text = "60",
     .minimum = 1, .maximum = 1 << 20, .local = true,
     .help = "Seconds that the trackers of report_to may take for their last rows at the end of a run."},
    {.name = "tracker_python", .type = TT_SETTING_STRING, FIELD(watch.tracker_python), .default_text = "python3",
     .environment = "TRIMTAB_PYTHON", .local = true,
     .help = "The Python that has the packages of the trackers of report_to: that of a virtual environment, or a name "
             "on PATH."},
    {.name = "project", .type = TT_SETTING_STRING, FIELD(watch.project), .needs = "report_to=trackio",
     .help = "Trackio's project; not given: TRACKIO_PROJECT, else huggingface."},
    {.name = "trackio_space_id", .type = TT_SETTING_STRING, FIELD(watch.trackio_space_id),
     .needs = "report_to=trackio",
     .help = "Trackio's space of the hub, which keeps the rows; not given: this machine."},
    {.name = "trackio_bucket_id", .type = TT_SETTING_STRING, FIELD(watch.trackio_bucket_id),
     .needs = "report_to=trackio", .help = "Bucket of the hub for the rows of that space."},
    {.name = "push_to_hub", .type = TT_SETTING_BOOL, FIELD(watch.push_to_hub), .default_text = "false",
     .help = "Upload the result to the hub, with a card; needs HF_TOKEN."},
    {.name = "hub_model_id", .aliases = "push_to_hub_model_id", .type = TT_SETTING_STRING, FIELD(watch.hub_model_id),
     .needs = "push_to_hub",
     .help = "The repository, OWNER/NAME; without an owner that of the token. Not given: the name of output_dir."},
    {.name = "hub_strategy", .type = TT_SETTING_CHOICE, FIELD(watch.hub_strategy),
     .choices = "end every_save checkpoint all_checkpoints", .default_text = "every_save", .needs = "push_to_hub",
     .help = "end: the result alone; every_save: the weights of each checkpoint too, while training goes on; "
             "checkpoint: also the whole newest checkpoint, as last-checkpoint; all_checkpoints: each, by its name."},
    {.name = "hub_private_repo", .type = TT_SETTING_BOOL, FIELD(watch.hub_private_repo), .default_text = "false",
     .needs = "push_to_hub", .help = "Make the repository private, where it is made."},
    {.name = "hub_revision", .type = TT_SETTING_STRING, FIELD(watch.hub_revision), .needs = "push_to_hub",
     .help = "Branch of the repository; not given: main."},
    {.name = "hub_token", .aliases = "push_to_hub_token", .type = TT_SETTING_STRING, FIELD(watch.hub_token),
     .needs = "push_to_hub", .transient = true, .local = true, .secret = true,
     .help = "The token; it is not recorded, and hidden in lists of processes once it is read. HF_TOKEN is in none."},
    {.name = "logging_dir", .type = TT_SETTING_STRING, FIELD(watch.logging_dir),
     .path = TT_PATH_WRITE, .needs = "report_to=tensorboard report_to=all",
     .help = "Folder of the TensorBoard files; not given: runs in output_dir."},
    {.name = "run_name", .type = TT_SETTING_STRING, FIELD(watch.run_name),
     .help = "Name of the run in the records."},
    {.name = "disable_tqdm", .type = TT_SETTING_BOOL, FIELD(watch.disable_tqdm), .default_text = "false",
     .local = true, .help = "Plain lines instead of the progress bar."},
    {.name = "log_sample", .type = TT_SETTING_BOOL, FIELD(watch.log_sample), .default_text = "true",
     .local = true,
     .help = "Show the first sample of the training data in the log; false: the log has no text of a row."},
    {.name = NULL},
};

const struct tt_setting tt_monitor_settings[] = {
    {.name = "metrics_port", .type = TT_SETTING_INT, FIELD(monitor.metrics_port), .default_text = "-1",
     .null_text = "-1", .minimum = -1, .maximum = 65535, .local = true,
     .help = "Port at which a training answers /metrics (Prometheus and OpenMetrics), /healthz and /readyz; further "
             "processes of a machine take the ports after it; 0: a free one, which is printed; -1: none."},
    {.name = "metrics_host", .type = TT_SETTING_STRING, FIELD(monitor.metrics_host), .default_text = "127.0.0.1",
     .local = true, .needs = "!metrics_port=-1",
     .help = "Address to listen at for them; 0.0.0.0: all networks of the machine."},
    {.name = "dashboard", .type = TT_SETTING_BOOL, FIELD(monitor.dashboard), .default_text = "false", .local = true,
     .help = "Serve a page that follows the training; its address is printed. trimtab dashboard shows the same of a "
             "folder."},
    {.name = "dashboard_port", .type = TT_SETTING_INT, FIELD(monitor.dashboard_port), .default_text = "0",
     .null_text = "0", .minimum = 0, .maximum = 65535, .local = true, .needs = "dashboard",
     .help = "Port of that page; 0: a free one."},
    {.name = "dashboard_host", .type = TT_SETTING_STRING, FIELD(monitor.dashboard_host), .default_text = "127.0.0.1",
     .local = true, .needs = "dashboard",
     .help = "Address to listen at for that page; others than those of this machine itself are open to everybody who "
             "can reach them."},
    {.name = "allowed_hosts", .type = TT_SETTING_JSON, FIELD(monitor.allowed_hosts), .local = true,
     .needs = "!metrics_port=-1 dashboard",
     .help = "Host names by which clients may ask for that page and for /metrics, as trimtab.example.com or "
             "*.example.com, besides localhost and addresses in numbers. Not given: no others at loopback, all "
             "elsewhere; a proxy that keeps the name of the client's request needs it."},
    {.name = "profile", .type = TT_SETTING_BOOL, FIELD(monitor.profile), .default_text = "false",
     .help = "Add the time by op, power and clock to the rows of metrics.jsonl, and write a trace of three steps as "
             "trace.json, for Perfetto or chrome://tracing. It takes some time of its own."},
    {.name = "callbacks", .type = TT_SETTING_JSON, FIELD(monitor.callbacks),
     .help = "[LLMStepProfiler]: the same as profile: true. Other callbacks are not supported."},
    {.name = NULL},
};

const struct tt_setting tt_device_kind_settings[] = {
    {.name = "device", .type = TT_SETTING_CHOICE, FIELD(device.choice), .default_text = "auto", .null_text = "auto",
     .choices = "auto cpu cuda",
     .local = true, .help = "Device to compute on; auto: GPUs if there are any, with one rank each."},
    {.name = NULL},
};

const struct tt_setting tt_device_settings[] = {
    {.name = "use_cpu", .aliases = "no_cuda", .type = TT_SETTING_BOOL, FIELD(device.use_cpu), .default_text = "false",
     .means = "true=device:cpu", .local = true, .help = "The same as device: cpu."},
    {.name = "backend", .type = TT_SETTING_STRING, FIELD(device.backend),
     .means = "cpu=device:cpu cuda=device:cuda gloo=device:cpu nccl=device:cuda mpi=", .local = true,
     .only_reason = "it takes one of cpu, cuda, gloo, nccl, mpi",
     .help = "Scripts' word for the device, or for the library between ranks that goes with one: cpu and gloo are "
             "device: cpu, cuda and nccl device: cuda."},
    {.name = "threads", .aliases = "num_cpu_threads_per_process", .type = TT_SETTING_INT, FIELD(device.threads),
     .default_text = "0", .null_text = "0", .minimum = 0, .maximum = 4096,
     .local = true, .help = "CPU threads of a rank; 0: processors / ranks."},
    {.name = "bf16", .type = TT_SETTING_BOOL, FIELD(device.bf16), .default_text = "true",
     .synonyms = "auto=true full=true", .changes = TT_CHANGES_RESULT,
     .help = "Compute in bfloat16, with masters, sums and losses in float32; false: all in float32. axolotl's words "
             "auto and full are true."},
    {.name = "fp16", .type = TT_SETTING_BOOL, FIELD(device.fp16), .default_text = "false",
     .help = "Half precision as recipes for older GPUs spell it: computed in bfloat16, whatever bf16 says, because "
             "float16 needs loss scaling. A GPU without bfloat16 is refused."},
    {.name = "device_memory", .type = TT_SETTING_BYTES, FIELD(device.device_memory), .default_text = "0",
     .null_text = "0",
     .local = true,
     .help = "Device memory that a rank may use (24GiB); 0: all memory of the device, on the CPU no limit."},
    {.name = "offload_params", .aliases = "fsdp_offload_params", .type = TT_SETTING_BOOL, FIELD(shard.offload_params),
     .default_text = "false", .needs = "!device=cpu",
     .help = "Keep frozen shards and optimizer state in page-locked host memory; on the CPU they always are in host "
             "memory."},
    {.name = NULL},
};

const struct tt_setting tt_sharding_settings[] = {
    {.name = "ranks", .type = TT_SETTING_INT, FIELD(launch.ranks), .default_text = "0", .null_text = "0",
     .minimum = 0, .maximum = 4096, .local = true, .help = "Ranks of this process; 0: one per GPU, or one on the CPU."},
    {.name = "sharding_strategy", .aliases = "fsdp_sharding_strategy", .type = TT_SETTING_CHOICE,
     FIELD(shard.sharding_strategy), .default_text = "FULL_SHARD",
     .choices = "FULL_SHARD SHARD_GRAD_OP NO_SHARD HYBRID_SHARD",
     .synonyms = "1=FULL_SHARD 2=SHARD_GRAD_OP 3=NO_SHARD 4=HYBRID_SHARD 5=HYBRID_SHARD "
                 "HYBRID_SHARD_ZERO2=HYBRID_SHARD",
     .help = "What the ranks split. FULL_SHARD: weights, gradients and optimizer state; SHARD_GRAD_OP: the same, "
             "but the weights are whole during a step; NO_SHARD: nothing; HYBRID_SHARD: as FULL_SHARD within each "
             "machine."},
    {.name = "fsdp_reshard_after_forward", .type = TT_SETTING_STRING, FIELD(shard.fsdp_reshard_after_forward),
     .synonyms = "yes=true on=true no=false off=false 0=false",
     .means = "true=sharding_strategy:FULL_SHARD false=sharding_strategy:SHARD_GRAD_OP *=sharding_strategy",
     .help = "accelerate's spelling: true is FULL_SHARD, false SHARD_GRAD_OP, or the name of a strategy."},
    {.name = "cpu_offload", .aliases = "fsdp_cpu_offload", .type = TT_SETTING_JSON, .offset = TT_SETTING_NO_FIELD,
     .spread = "offload_params", .transient = true,
     .help = "FSDP's spelling of offload_params: true, or {offload_params: true}."},
    {.name = "param_dtype", .type = TT_SETTING_STRING, FIELD(shard.param_dtype), .choices = "bfloat16 float32 float16",
     .synonyms = "bf16=bfloat16 fp32=float32 fp16=float16",
     .means = "bfloat16=bf16:true float32=bf16:false float16=fp16:true",
     .help = "FSDP's spelling of the compute type: bfloat16 is bf16: true, float32 bf16: false, float16 fp16: true."},
    {.name = "backward_prefetch", .aliases = "fsdp_backward_prefetch fsdp_backward_prefetch_policy",
     .type = TT_SETTING_CHOICE, FIELD(shard.backward_prefetch), .default_text = "BACKWARD_PRE",
     .choices = "NO_PREFETCH BACKWARD_PRE BACKWARD_POST", .synonyms = "1=BACKWARD_PRE 2=BACKWARD_POST",
     .needs = "!sharding_strategy=NO_SHARD",
     .help = "When backward gathers the next block. NO_PREFETCH: when it is needed; BACKWARD_PRE: while this block "
             "computes, with a second buffer for gathered blocks; BACKWARD_POST: while this block's gradients are "
             "summed."},
    {.name = "forward_prefetch", .aliases = "fsdp_forward_prefetch", .type = TT_SETTING_BOOL,
     FIELD(shard.forward_prefetch), .default_text = "true", .needs = "!sharding_strategy=NO_SHARD",
     .help = "Gather the next block ahead in forward. Default if backward_prefetch is not BACKWARD_PRE: false."},
    {.name = "unsharded_blocks", .type = TT_SETTING_INT, FIELD(shard.unsharded_blocks), .default_text = "-1",
     .null_text = "-1", .minimum = -1, .maximum = 1 << 16,
     .help = "Blocks, counted from the embedding, whose weights stay whole on every rank with FULL_SHARD and "
             "HYBRID_SHARD, so that nothing is gathered for them; -1: on GPUs as many as three quarters of the memory "
             "hold."},
    {.name = "limit_all_gathers", .aliases = "fsdp_limit_all_gathers", .type = TT_SETTING_BOOL,
     FIELD(shard.limit_all_gathers), .default_text = "true",
     .help = "Where several GPUs are in one process, queue a block only when the GPU has finished the block before the "
             "last; false: queue whole steps ahead, which stalls copies between the GPUs."},
    {.name = "state_dict_type", .aliases = "fsdp_state_dict_type", .type = TT_SETTING_CHOICE,
     FIELD(watch.state_dict_type), .default_text = "FULL_STATE_DICT", .null_text = "FULL_STATE_DICT",
     .choices = "FULL_STATE_DICT SHARDED_STATE_DICT",
     .synonyms = "1=FULL_STATE_DICT 2=SHARDED_STATE_DICT 3=SHARDED_STATE_DICT LOCAL_STATE_DICT=SHARDED_STATE_DICT",
     .help = "Form of the training state in checkpoints. FULL_STATE_DICT: whole tensors, in one file, or in several if "
             "it is large; SHARDED_STATE_DICT: one file per rank."},
    {.name = "reduce_dtype", .type = TT_SETTING_CHOICE, FIELD(shard.reduce_dtype),
     .default_text = "float32", .null_text = "float32",
     .choices = "float32 bfloat16", .synonyms = "fp32=float32 bf16=bfloat16",
     .help = "Type in which ranks exchange gradients."},
    {.name = "fsdp", .type = TT_SETTING_STRING, FIELD(shard.fsdp),
     .means = "full_shard=sharding_strategy:FULL_SHARD shard_grad_op=sharding_strategy:SHARD_GRAD_OP "
              "no_shard=sharding_strategy:NO_SHARD hybrid_shard=sharding_strategy:HYBRID_SHARD "
              "hybrid_shard_zero2=sharding_strategy:HYBRID_SHARD offload=offload_params:true auto_wrap= true= false=",
     .only_reason = "it takes one of full_shard, shard_grad_op, no_shard, hybrid_shard, and auto_wrap, offload",
     .help = "transformers' spelling of the strategy: \"full_shard auto_wrap\"."},
    {.name = "fsdp_config", .type = TT_SETTING_JSON, FIELD(shard.fsdp_config), .path = TT_PATH_READ,
     .help = "transformers' fsdp_config: a mapping or the path of a JSON file."},
    {.name = "num_processes", .type = TT_SETTING_INT, FIELD(launch.num_processes), .default_text = "0",
     .null_text = "0", .minimum = -1, .maximum = 1 << 20,
     .local = true, .help = "Ranks of all machines together; 0: not given."},
    {.name = "num_machines", .aliases = "nnodes", .type = TT_SETTING_INT, FIELD(launch.num_machines),
     .default_text = "1", .minimum = 1, .maximum = 1 << 20, .local = true, .help = "Number of machines of the run."},
    {.name = "machine_rank", .aliases = "node_rank", .type = TT_SETTING_INT, FIELD(launch.machine_rank),
     .default_text = "0", .minimum = 0, .maximum = 1 << 20, .local = true, .help = "Number of this machine, from 0."},
    {.name = "main_process_ip", .type = TT_SETTING_STRING, FIELD(launch.main_process_ip),
     .local = true, .help = "Address of machine 0."},
    {.name = "main_process_port", .type = TT_SETTING_INT, FIELD(launch.main_process_port), .default_text = "0",
     .null_text = "0", .minimum = 0, .maximum = 65535,
     .local = true, .help = "Port on machine 0; 0: MASTER_PORT, or 29500."},
    {.name = "verify_inputs", .type = TT_SETTING_CHOICE, FIELD(launch.verify_inputs), .default_text = "quick",
     .choices = "quick full",
     .help = "How to compare the input files of all processes with each other and with those of a checkpoint's run. "
             "quick: sizes, headers and samples of every tensor; full: every byte."},
    {.name = "preflight", .type = TT_SETTING_CHOICE, FIELD(launch.preflight), .default_text = "off",
     .choices = "off quick", .help = "quick: check the machines for a few seconds before training, as trimtab doctor "
     "does, without the speed of devices and links; a check that fails ends the run."},
    {.name = "rendezvous_timeout", .type = TT_SETTING_INT, FIELD(launch.rendezvous_timeout), .default_text = "300",
     .minimum = 1, .maximum = 1 << 20,
     .local = true, .help = "Seconds that processes wait for each other at the start of a run."},
    {.name = "rendezvous_bind", .type = TT_SETTING_STRING, FIELD(launch.rendezvous_bind),
     .local = true,
     .help = "Address at which rank 0 listens for the other processes, and at which a process with this address "
             "listens for data lines. Default: loopback if all ranks are on this machine by the launch, otherwise all "
             "addresses."},
    {.name = NULL},
};
