/* Rows of one kind of job, and the lists of rows of each kind. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "backend/settings.h"
#include "data/settings.h"
#include "job/known.h"
#include "job/settings.h"
#include "model/settings.h"
#include "optim/settings.h"

/* One row reads as one paragraph. */
/* clang-format off */

#define FIELD(member) .offset = offsetof(struct tt_job_spec, member)
static const struct tt_setting inference_settings[] = {
    {.name = "per_device_eval_batch_size", .aliases = "batch_size per_gpu_eval_batch_size",
     .type = TT_SETTING_INT, FIELD(run.per_device_eval_batch_size), .default_text = "8", .minimum = 1,
     .maximum = 1 << 20,
     .help = "Samples of one batch. Not given, generate on a GPU completes as many prompts at a time as its memory "
             "allows, at most 256."},
    {.name = "seed", .type = TT_SETTING_INT, FIELD(run.seed), .default_text = "42", .minimum = 0,
     .maximum = INFINITY, .help = "Seed of all random numbers."},
    {.name = NULL},
};

/* Tables of jobs that have a memory plan for data of their own. */
static const struct tt_setting search_settings[] = {
    {.name = "auto_find_batch_size", .type = TT_SETTING_BOOL, FIELD(run.auto_find_batch_size), .default_text = "false",
     .changes = TT_CHANGES_OTHER,
     .help = "Use the largest per_device_train_batch_size up to the one that is given which fits into memory by the "
             "memory plan. A resumed run keeps that of its checkpoint."},
    {.name = NULL},
};
#undef FIELD

#define FIELD(member) .offset = offsetof(struct tt_generate_config, member)
/* Transient: not part of a training run's resolved file. */
const struct tt_setting tt_completion_settings[] = {
    {.name = "max_new_tokens", .type = TT_SETTING_INT, FIELD(max_new_tokens), .default_text = "128",
     .transient = true, .minimum = 1, .maximum = 1 << 20, .help = "Largest number of tokens of a completion."},
    {.name = NULL},
};
const struct tt_setting tt_generate_settings[] = {
    {.name = "do_sample", .aliases = "sample", .type = TT_SETTING_TRISTATE, FIELD(do_sample),
     .transient = true,
     .help = "Draw tokens instead of choosing the likeliest; null: on if temperature, top_k, top_p or min_p is "
             "given."},
    {.name = "temperature", .type = TT_SETTING_DOUBLE, FIELD(temperature), .default_text = "1",
     .transient = true, .minimum = 0, .maximum = 1000, .needs = "!do_sample=false",
     .help = "Divisor of the logits; 0: choose the likeliest token."},
    {.name = "top_k", .type = TT_SETTING_INT, FIELD(top_k), .default_text = "0", .null_text = "0",
     .transient = true, .minimum = 0, .maximum = INFINITY, .needs = "!do_sample=false+!temperature=0",
     .help = "Draw from this number of likeliest tokens; 0: from all."},
    {.name = "top_p", .type = TT_SETTING_DOUBLE, FIELD(top_p), .default_text = "1", .null_text = "1",
     .transient = true, .minimum = 1e-6, .maximum = 1, .needs = "!do_sample=false+!temperature=0",
     .help = "Draw from the likeliest tokens that have this share of the probability together."},
    {.name = "min_p", .type = TT_SETTING_DOUBLE, FIELD(min_p), .default_text = "0", .null_text = "0",
     .transient = true, .minimum = 0, .maximum = 1, .needs = "!do_sample=false+!temperature=0",
     .help = "Draw from tokens that have at least this share of the largest probability."},
    {.name = "repetition_penalty", .type = TT_SETTING_DOUBLE, FIELD(repetition_penalty), .default_text = "1",
     .null_text = "1", .transient = true, .minimum = 1e-6, .maximum = 1000,
     .help = "Divide the logits of tokens that the prompt or the completion has by this; multiply negative ones."},
    {.name = "ignore_eos", .type = TT_SETTING_BOOL, FIELD(ignore_eos), .default_text = "false",
     .transient = true, .help = "Continue after the end token."},
    {.name = NULL},
};
#undef FIELD

#define FIELD(member) .offset = offsetof(struct tt_eval_spec, member)
static const struct tt_setting eval_settings[] = {
    {.name = "exact_match", .type = TT_SETTING_BOOL, FIELD(exact_match), .default_text = "false", .of = "language",
     .help = "Also complete each prompt greedily and count the completions that equal the row's."},
    {.name = "max_new_tokens", .type = TT_SETTING_INT, FIELD(max_new_tokens), .default_text = "128", .minimum = 1,
     .maximum = 1 << 20, .of = "language", .needs = "exact_match", .help = "Largest number of tokens of a completion."},
    {.name = NULL},
};
#undef FIELD

#define FIELD(member) .offset = offsetof(struct tt_plan_spec, member)
static const struct tt_setting plan_settings[] = {
    {.name = "device", .type = TT_SETTING_STRING, FIELD(device), .default_text = "auto",
     .help = "Device to plan for: cpu, cuda, auto, or a chip, which need not be present: h200, rtx4090, ... (the error "
             "for an unknown word lists them)."},
    {.name = "config_json", .type = TT_SETTING_STRING, FIELD(config_json), .path = TT_PATH_READ,
     .help = "A config.json to plan for, such as bench/shapes/m11b.json; not given: that of model_name_or_path."},
    {.name = "sequence_length", .aliases = "seq_length seq", .type = TT_SETTING_INT, FIELD(sequence_length),
     .default_text = "0", .minimum = 0, .maximum = 1 << 20, .of = "language",
     .help = "Tokens of each row; 0: max_length."},
    {.name = "prompt_length", .type = TT_SETTING_INT, FIELD(prompt_length), .default_text = "0", .minimum = 0,
     .maximum = 1 << 20, .of = "language",
     .help = "Tokens of each row's prompt, which shared_prompt computes once; 0: every token counts for each answer."},
    {.name = "num_classes", .type = TT_SETTING_INT, FIELD(num_classes), .default_text = "0", .maximum = 100000,
     .of = "detection",
     .help = "Of a detection: classes with the background, as torchvision counts them; 0: those of weights_path, "
             "without the weights of a detector COCO's 91."},
    {.name = "generation_length", .type = TT_SETTING_INT, FIELD(generation_length), .default_text = "0", .minimum = 0,
     .maximum = 1 << 20,
     .help = "Plan generate, chat or serve instead of a training: tokens of a sequence with its answer, of which "
             "per_device_eval_batch_size run at a time; 0: a training."},
    {.name = "network_bandwidth", .type = TT_SETTING_BYTES, FIELD(network_bandwidth), .default_text = "0",
     .help = "Bytes a second that a rank receives from other machines (50GB: an adapter of 400 Gbit/s for each GPU); "
             "0: the usual value of servers with the chip."},
    {.name = NULL},
};
#undef FIELD

#define FIELD(member) .offset = offsetof(struct tt_bench_spec, member)
static const struct tt_setting bench_settings[] = {
    {.name = "config_json", .type = TT_SETTING_STRING, FIELD(config_json), .required = true, .path = TT_PATH_READ,
     .help = "Config.json of the model to measure, such as bench/shapes/q05b.json; the weights are random."},
    {.name = "sequence_length", .aliases = "seq_length seq", .type = TT_SETTING_INT, FIELD(sequence_length),
     .default_text = "512", .minimum = 2, .maximum = 1 << 20, .help = "Tokens of each row."},
    {.name = "row_tokens_min", .type = TT_SETTING_INT, FIELD(row_tokens_min), .default_text = "0", .minimum = 0,
     .maximum = 1 << 20, .needs = "row_tokens_max",
     .help = "Tokens of the shortest row, with row_tokens_max: rows of random lengths, packed to sequence_length."},
    {.name = "row_tokens_max", .type = TT_SETTING_INT, FIELD(row_tokens_max), .default_text = "0", .minimum = 0,
     .maximum = 1 << 20, .help = "Tokens of the longest of these rows; 0: every row has sequence_length tokens."},
    {.name = "steps", .type = TT_SETTING_INT, FIELD(steps), .default_text = "5", .minimum = 1, .maximum = 1 << 20,
     .help = "Timed optimizer steps; the result is their median."},
    {.name = "warmup", .type = TT_SETTING_INT, FIELD(warmup), .default_text = "2", .minimum = 0, .maximum = 1 << 20,
     .help = "Optimizer steps before the timed ones."},
    {.name = "profile_steps", .type = TT_SETTING_INT, FIELD(profile_steps), .default_text = "1", .minimum = 1,
     .maximum = 1 << 10,
     .help = "Optimizer steps behind the timed ones, or passes of bench generate, from which seconds_by_op and "
             "gathers are."},
    {.name = "prompt_tokens", .type = TT_SETTING_INT, FIELD(prompt_tokens), .default_text = "64", .minimum = 1,
     .maximum = 1 << 20, .help = "Tokens of each prompt (bench generate)."},
    {.name = "new_tokens", .type = TT_SETTING_INT, FIELD(new_tokens), .default_text = "256", .minimum = 1,
     .maximum = 1 << 20, .help = "Tokens of each answer (bench generate)."},
    {.name = "rows", .type = TT_SETTING_INT, FIELD(rows), .default_text = "0", .minimum = 0, .maximum = 1 << 24,
     .help = "Prompts in all (bench generate), of which each rank runs per_device_train_batch_size at a time; 0: as "
             "many as run at a time."},
    {.name = "adapters", .type = TT_SETTING_INT, FIELD(adapters), .default_text = "0", .minimum = 0, .maximum = 256,
     .help = "Adapters of every linear of the layers, which the rows have in turn (bench generate); 0: the base "
             "alone."},
    {.name = "adapter_rank", .type = TT_SETTING_INT, FIELD(adapter_rank), .default_text = "16", .minimum = 1,
     .maximum = 4096, .needs = "adapters", .help = "Their rank."},
    {.name = "temperature", .type = TT_SETTING_DOUBLE, FIELD(temperature), .default_text = "0", .minimum = 0,
     .help = "Tokens are drawn at this temperature (bench generate); 0: the likeliest is taken."},
    {.name = NULL},
};
#undef FIELD

/* A part of a job: its settings, then what other libraries say of it. */
#define MODEL {"Model", tt_model_settings, 0}, {"Model", tt_known_model, 0}
#define LORA {"LoRA", tt_lora_settings, offsetof(struct tt_job_spec, lora)}, {"LoRA", tt_known_lora, 0}
#define QUANTIZATION {"Quantized base", tt_quantization_settings, offsetof(struct tt_job_spec, quantization)}, \
                     {"Quantized base", tt_known_quantization, 0}
#define DATA {"Data", tt_data_settings, offsetof(struct tt_job_spec, data)}, {"Data", tt_known_data, 0}
#define TASK_ROWS {"Detection", tt_task_settings, 0}
#define WHICH {"Objective", tt_objective_settings, 0}
#define OWN(name) {"Objective", tt_objective_##name##_settings, \
                   offsetof(struct tt_job_spec, objectives.values[TT_OBJECTIVE_##name])},
#define LOSS {"Objective", tt_loss_settings, 0}
#define RUN {"Run", tt_run_settings, 0}, {"Run", tt_known_run, 0}
#define SEARCH {"Run", search_settings, 0}
#define OPTIMIZER {"Optimizer", tt_optim_settings, offsetof(struct tt_job_spec, optim)}, \
                  {"Optimizer", tt_known_optim, 0}
#define WATCH {"Logging, evaluation, saving", tt_watch_settings, 0}, {"Logging, evaluation, saving", tt_known_watch, 0}
#define MONITOR {"Monitoring", tt_monitor_settings, 0}
#define BATCH {"Batch", inference_settings, 0}
#define DEVICE_KIND {"Device", tt_device_kind_settings, 0}
#define DEVICE {"Device", tt_device_settings, 0}, \
               {"Device", tt_tuning_settings, offsetof(struct tt_job_spec, device.tuning)}, \
               {"Device", tt_known_device, 0}
#define SHARDING {"Sharding and launch", tt_sharding_settings, 0}, {"Sharding and launch", tt_known_sharding, 0}

static const struct tt_setting_section train[] = {MODEL, LORA, QUANTIZATION, DATA, WHICH,
#define OBJECTIVE(name, what, losses) OWN(name)
#include "objective/objectives.def"
                                                  LOSS, TASK_ROWS,
#define TASK_SETTINGS(name, title) {title, tt_task_##name##_settings, 0},
#include "job/tasks.def"
                                                  RUN, SEARCH, OPTIMIZER,
                                                  WATCH, MONITOR, DEVICE_KIND, DEVICE, SHARDING};
static const struct tt_setting_section evaluate[] = {{"Evaluation", eval_settings, 0}, MODEL, QUANTIZATION, DATA,
                                                     WHICH,
#define OBJECTIVE(name, what, losses) OWN(name)
#include "objective/objectives.def"
                                                     LOSS, TASK_ROWS,
#define TASK_SETTINGS(name, title) {title, tt_task_##name##_settings, 0},
#include "job/tasks.def"
                                                     BATCH, DEVICE_KIND, DEVICE, SHARDING};
static const struct tt_setting_section generate[] = {
    {"Completions", tt_completion_settings, offsetof(struct tt_generate_spec, generate)},
    {"Generation", tt_generate_settings, offsetof(struct tt_generate_spec, generate)}, MODEL, QUANTIZATION, BATCH,
    DEVICE_KIND, DEVICE, SHARDING};
static const struct tt_setting_section plan[] = {{"Plan", plan_settings, 0}, MODEL, LORA, QUANTIZATION, DATA, WHICH,
#define OBJECTIVE(name, what, losses) OWN(name)
#include "objective/objectives.def"
                                                 LOSS, TASK_ROWS,
#define TASK_SETTINGS(name, title) {title, tt_task_##name##_settings, 0},
#include "job/tasks.def"
                                                 RUN, SEARCH, OPTIMIZER, WATCH, MONITOR, DEVICE, SHARDING};
static const struct tt_setting_section bench[] = {{"Benchmark", bench_settings, 0}, LORA, QUANTIZATION, RUN, OPTIMIZER,
                                                  DEVICE_KIND, DEVICE, SHARDING};

#define COUNTED(sections) {sections, sizeof sections / sizeof *sections}
const struct tt_job_rows tt_job_rows[TT_JOB_KINDS] = {
    [TT_JOB_TRAIN] = COUNTED(train), [TT_JOB_EVALUATE] = COUNTED(evaluate), [TT_JOB_GENERATE] = COUNTED(generate),
    [TT_JOB_PLAN] = COUNTED(plan),   [TT_JOB_BENCH] = COUNTED(bench),
};
/* clang-format on */

tt_status tt_job_settings_create(enum tt_job_kind kind, void *spec, size_t spec_bytes,
                                 struct tt_settings **out)
{
    return tt_settings_create(tt_job_rows[kind].sections, tt_job_rows[kind].count, spec, spec_bytes, out);
}

const char *tt_job_word(const char *name, int value, char word[TT_JOB_WORD_BYTES])
{
    const struct tt_job_rows *rows = &tt_job_rows[TT_JOB_TRAIN];
    word[0] = '\0';
    for (size_t s = 0; s < rows->count; s++)
        for (const struct tt_setting *row = rows->sections[s].rows; row->name != NULL; row++)
            if (row->type == TT_SETTING_CHOICE && strcmp(row->name, name) == 0)
                return tt_setting_word(row, value, word, TT_JOB_WORD_BYTES);
    return word;
}
