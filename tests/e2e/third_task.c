/* A third task, in one file and lines of its tasks.def: a language model that learns rows of random ids, which the
 * task makes of the seed and no file has. The program trains it with evaluations on two ranks, resumes it with the bits
 * of the uninterrupted run, evaluates and plans it, and refuses settings of other tasks by its name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "../../src/job/task.c"
#include "../../src/run/task.c"
#include "base/file.h"
#include "cli/commands.h"
#include "engine/feed_rows.h"
#include "engine/rank.h"
#include "job/language_inputs.h"
#include "job/resolve.h"
#include "support/must.h"
#include "support/words.h"
#include "support/workplace.h"

/* ---- What a job asks (job/task.h) ---- */

enum { ROWS = 6, EVAL_ROWS = 3, ROW_TOKENS = 12 };

static tt_status check(const struct tt_settings *settings, const struct tt_job_spec *job)
{
    (void)settings;
    if (job->data.dataset_name == NULL) return TT_OK;
    return tt_job_usage("dataset_name is given, and recall makes its own rows", "leave dataset_name out");
}

static tt_status check_job(const struct tt_job_spec *job)
{
    (void)job;
    return TT_OK;
}

/* The model of the folder, and rows of the seed. */
static tt_status open_inputs(const struct tt_inputs_config *config, struct tt_inputs *inputs)
{
    struct tt_inputs_config model = *config;
    int64_t vocab;
    model.use = TT_INPUTS_GENERATE; /* no rows of files */
    model.data = NULL;
    model.evaluates = false;
    TT_TRY(tt_language_inputs_open(&model, inputs));
    inputs->max_length = ROW_TOKENS;
    vocab = inputs->model_facts.vocab_size;
    if (config->use == TT_INPUTS_TRAIN)
        TT_TRY(tt_dataset_create_random(ROWS, ROW_TOKENS, ROW_TOKENS, vocab, (uint64_t)config->seed,
                                        &inputs->train));
    if (!config->evaluates) return TT_OK;
    return tt_dataset_create_random(EVAL_ROWS, ROW_TOKENS, ROW_TOKENS, vocab, (uint64_t)config->seed + 1,
                                    &inputs->eval);
}

static tt_status network(const struct tt_plan_spec *spec, struct tt_arena *arena,
                         struct tt_model_facts *facts, struct tt_model_options *options)
{
    return tt_task_language.network(spec, arena, facts, options);
}

static tt_status batch_limits(const struct tt_plan_spec *spec, const struct tt_model_facts *facts,
                              struct tt_batch_limits *train, struct tt_batch_limits *eval)
{
    int64_t batch = spec->job.run.per_device_train_batch_size;
    (void)facts, (void)eval;
    *train = (struct tt_batch_limits){
        .tokens = ROW_TOKENS * batch, .sequences = batch, .rows = ROW_TOKENS * batch, .length = ROW_TOKENS};
    return TT_OK;
}

const struct tt_task_ops tt_task_recall = {
    .planned_file = "the model's config.json of this machine; --config_json FILE names another",
    .writes_text = true,
    .size = {.others = "the rows of recall have one length"},
    .check = check,
    .check_train = check_job,
    .check_evaluate = check_job,
    .open = open_inputs,
    .network = network,
    .limits = batch_limits,
};

/* ---- What a run asks (run/task.h) ---- */

static tt_status order(const struct tt_inputs *inputs, const struct tt_task_order *how,
                       struct tt_task_data *data)
{
    const struct tt_sampler_config config = {.micro_batch_size = how->batch_size,
                                             .world_size = how->data_size,
                                             .accumulation = how->accumulation,
                                             .seed = how->seed,
                                             .shuffle = how->train};
    return tt_sampler_create(how->train ? inputs->train : inputs->eval, &config, &data->sampler);
}

static tt_status epoch_steps(const struct tt_inputs *inputs, const struct tt_task_data *data, int64_t *steps)
{
    (void)inputs;
    *steps = tt_sampler_steps_per_epoch(data->sampler);
    return TT_OK;
}

static struct tt_batch_limits limits(const struct tt_inputs *inputs, const struct tt_task_data *data,
                                     int64_t steps)
{
    struct tt_batch_limits largest;
    (void)inputs;
    tt_sampler_limits(data->sampler, 0, steps > 0 ? steps : tt_sampler_steps_per_epoch(data->sampler),
                      &largest);
    return largest;
}

static bool evaluates(const struct tt_inputs *inputs)
{
    return inputs->eval != NULL;
}

static double samples(const struct tt_inputs *inputs, const struct tt_objective *objective)
{
    return (double)tt_objective_samples(objective, (int64_t)tt_dataset_count(inputs->train));
}

static tt_status describe(const struct tt_inputs *inputs, bool train, struct tt_str *text)
{
    return tt_str_printf(text, "rows to recall: %zu", tt_dataset_count(train ? inputs->train : inputs->eval));
}

static tt_status report(const struct tt_run_job *job, const struct tt_inputs *inputs)
{
    struct tt_str text = {0};
    tt_status status = describe(inputs, true, &text);
    if (status == TT_OK) tt_run_report(job, tt_str_text(&text));
    tt_str_deinit(&text);
    return status;
}

static uint64_t sum(const struct tt_inputs *inputs)
{
    return tt_dataset_sum(inputs->train);
}

static void identify(const struct tt_inputs *inputs, const struct tt_data_config *data,
                     struct tt_json_value *to)
{
    (void)inputs, (void)data;
    tt_json_set(to, "recalled tokens of a row", tt_json_new_integer(ROW_TOKENS));
}

static tt_status feed(const struct tt_inputs *inputs, const struct tt_task_data *data, struct tt_rank *rank,
                      struct tt_feed *to)
{
    (void)inputs;
    return tt_feed_of_rows(data->sampler, rank->mesh.axes[TT_AXIS_DATA].rank, to);
}

static tt_status evaluate(const struct tt_task_evaluation *how, struct tt_rank *rank,
                          struct tt_evaluation *evaluation)
{
    return tt_task_run_language.evaluate(how, rank, evaluation);
}

static double flops(const struct tt_model *model, const struct tt_counters *counters)
{
    return tt_task_run_language.flops(model, counters);
}

static int64_t labels(const struct tt_evaluation *evaluation)
{
    return evaluation->supervised_tokens;
}

static const char *weights(const struct tt_inputs *inputs, const struct tt_model_spec *model)
{
    (void)inputs;
    return model->model_name_or_path;
}

static void saves(const struct tt_inputs *inputs, struct tt_save_template files[TT_TASK_FILES],
                  struct tt_saver_config *config)
{
    (void)inputs, (void)files, (void)config;
}

const struct tt_task_run_ops tt_task_run_recall = {
    .unit = TT_COUNT_TOKENS,
    .order = order,
    .epoch_steps = epoch_steps,
    .limits = limits,
    .evaluates = evaluates,
    .samples = samples,
    .describe = describe,
    .report = report,
    .sum = sum,
    .identify = identify,
    .feed = feed,
    .evaluate = evaluate,
    .flops = flops,
    .labels = labels,
    .weights = weights,
    .saves = saves,
};

/* ---- The program ---- */

static struct test_workplace place;
static char output[1 << 15];

/* Runs a command; a '@' in a word stands for the working folder. */
static int run(const char *command)
{
    struct test_words words = {0};
    char expanded[4096], *at = expanded, *text = NULL, *argv[100] = {0};
    size_t bytes = 0;
    for (const char *c = command; *c != '\0'; c++)
        at += *c == '@' ? sprintf(at, "%s/", place.folder) : sprintf(at, "%c", *c);
    test_words_add(&words, expanded);
    for (int i = 0; i < words.count; i++) argv[i] = (char *)(uintptr_t)words.list[i];
    FILE *out = open_memstream(&text, &bytes);
    int code = tt_cli_main(words.count, argv, out, out);
    fclose(out);
    snprintf(output, sizeof output, "%s", text);
    free(text);
    return code;
}

static void succeed(const char *command, const char *wanted)
{
    int code = run(command);
    if (code != 0 || strstr(output, wanted) == NULL) fail_msg("'%s' ends with %d: %s", command, code, output);
}

static void refuse(const char *command, const char *wanted)
{
    int code = run(command);
    if (code == 0 || strstr(output, wanted) == NULL) fail_msg("'%s' ends with %d: %s", command, code, output);
}

static void read_file(const char *name, struct tt_str *text)
{
    char path[TEST_PATH_BYTES];
    *text = (struct tt_str){0};
    test_must(tt_file_read(test_workplace_path(&place, name, path), 1 << 26, text));
}

static void same_weights(const char *a, const char *b)
{
    struct tt_str left, right;
    read_file(a, &left);
    read_file(b, &right);
    assert_int_equal(left.bytes, right.bytes);
    assert_memory_equal(left.data, right.data, left.bytes);
    tt_str_deinit(&left);
    tt_str_deinit(&right);
}

#define RECALL                                                                                               \
    "trimtab train --task recall --model_name_or_path @model --bf16 false --threads 1 --seed 3 "             \
    "--per_device_train_batch_size 2 --report_to none --ranks 2 --eval_strategy steps --eval_steps 2 "       \
    "--save_steps 2 --max_steps 4 --learning_rate 0.01 "
#define ADAPTER "/adapter_model.safetensors"

static void trained_and_resumed(void **state)
{
    struct tt_str rows;
    (void)state;
    succeed(RECALL "--output_dir @out", "rows to recall: 6");
    read_file("out/metrics.jsonl", &rows);
    assert_non_null(strstr(tt_str_text(&rows), "\"eval_loss\""));
    assert_non_null(strstr(tt_str_text(&rows), "\"num_tokens\": 144")); /* two epochs of 6 rows of 12 */
    tt_str_deinit(&rows);
    succeed(RECALL "--output_dir @again --resume_from_checkpoint @out/checkpoint-2", "rows to recall: 6");
    same_weights("out" ADAPTER, "again" ADAPTER);
    refuse("trimtab train --model_name_or_path @model --dataset_name @train.jsonl --bf16 false --max_steps 4 "
           "--resume_from_checkpoint @out/checkpoint-2 --output_dir @other",
           "training data was ");
}

static void evaluated_and_planned(void **state)
{
    (void)state;
    succeed("trimtab eval --task recall --model_name_or_path @model --adapter_name_or_path @out --bf16 false "
            "--threads 1 --seed 3 --per_device_eval_batch_size 1",
            "tokens          33 supervised");
    succeed("trimtab plan --task recall --config_json @model/config.json --device h200", "memory of a rank");
    refuse("trimtab plan --task recall --config_json @model/config.json --device h200 --max length",
           "the rows of recall have one length");
}

static void refused_by_its_name(void **state)
{
    (void)state;
    refuse(RECALL "--output_dir @no --hflip 0.5", "hflip is given, and the task is recall");
    refuse(RECALL "--output_dir @no --dataset_name @train.jsonl",
           "dataset_name is given, and recall makes its own rows");
    refuse("trimtab train --task reading --output_dir @no", "recall");
}

static int begin(void **state)
{
    char path[TEST_PATH_BYTES];
    (void)state;
    test_workplace_create("qwen2", &place);
    test_workplace_write(&place, "train.jsonl", "{\"text\": \"red green blue\"}\n", path);
    return 0;
}

static int end(void **state)
{
    (void)state;
    test_workplace_remove(&place);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trained_and_resumed),
        cmocka_unit_test(evaluated_and_planned),
        cmocka_unit_test(refused_by_its_name),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
