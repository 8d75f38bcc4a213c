/* libtrimtab as its users have it: this file includes trimtab.h and nothing else of the project, and links
 * the shared library. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "trimtab.h"

/* A folder with the tiny reference model and a tokenizer of single bytes as model/, and rows as train.jsonl.
 */
struct place {
    char folder[256], model[300], data[300], output[300];
};

static void run_shell(const char *command)
{
    if (system(command) != 0) fail_msg("%s", command);
}

static int make_place(void **state)
{
    struct place *place = calloc(1, sizeof *place);
    char command[2048];
    const char *temporary = getenv("TMPDIR");
    snprintf(place->folder, sizeof place->folder, "%s/trimtab-library-XXXXXX",
             temporary != NULL ? temporary : "/tmp");
    if (mkdtemp(place->folder) == NULL) return -1;
    snprintf(place->model, sizeof place->model, "%s/model", place->folder);
    snprintf(place->data, sizeof place->data, "%s/train.jsonl", place->folder);
    snprintf(place->output, sizeof place->output, "%s/out", place->folder);
    snprintf(command, sizeof command,
             "cp -r '%s/golden/qwen2/model' '%s' && cp '%s'/support/tiny_tokenizer/* '%s'", TT_TEST_ROOT,
             place->model, TT_TEST_ROOT, place->model);
    run_shell(command);
    FILE *rows = fopen(place->data, "w");
    for (int i = 0; i < 24; i++)
        fprintf(rows, "{\"prompt\": \"%d + 1 =\", \"completion\": \" %d\"}\n", i, i + 1);
    fclose(rows);
    *state = place;
    return 0;
}

static int remove_place(void **state)
{
    struct place *place = *state;
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", place->folder);
    run_shell(command);
    free(place);
    return 0;
}

static void check_ok(tt_status status)
{
    char text[2048];
    if (status == TT_OK) return;
    tt_error_format(tt_error_last(), text, sizeof text);
    fail_msg("%s", text);
}

static struct tt_job *make_job(const struct place *place)
{
    struct tt_job *job = NULL;
    check_ok(tt_job_create(&job));
    check_ok(tt_job_set(job, "model_name_or_path", place->model));
    check_ok(tt_job_set(job, "threads", "1"));
    check_ok(tt_job_set(job, "bf16", "false"));
    return job;
}

static struct tt_job *make_training(const struct place *place, const char *steps)
{
    struct tt_job *job = make_job(place);
    check_ok(tt_job_set(job, "dataset_name", place->data));
    check_ok(tt_job_set(job, "output_dir", place->output));
    check_ok(tt_job_set(job, "max_steps", steps));
    check_ok(tt_job_set(job, "report_to", "none"));
    check_ok(tt_job_set(job, "learning_rate", "0.01"));
    return job;
}

struct seen {
    struct tt_job *job;
    int messages, steps, rows, saves, parts;
    double last_loss;
    int64_t stop_at;
    int stops; /* calls of tt_job_stop then */
};

static void on_message(void *context, const char *line)
{
    struct seen *seen = context;
    assert_null(strchr(line, '\n'));
    seen->messages++;
}

static void on_progress(void *context, const struct tt_progress *progress)
{
    struct seen *seen = context;
    seen->steps++;
    assert_int_equal(progress->step, seen->steps);
    seen->last_loss = progress->loss;
    for (int i = 0; i < seen->stops && progress->step == seen->stop_at; i++) tt_job_stop(seen->job);
}

static void on_log(void *context, const struct tt_log_row *row)
{
    struct seen *seen = context;
    assert_true(row->field_count > 0);
    seen->rows++;
}

static void on_save(void *context, const char *folder, double seconds)
{
    struct seen *seen = context;
    assert_non_null(strstr(folder, "out"));
    assert_true(seconds >= 0);
    seen->saves++;
}

static void on_step_part(void *context, const struct tt_progress *progress, double part)
{
    struct seen *seen = context;
    assert_int_equal(progress->step, seen->steps);
    assert_true(part >= 0 && part < 1);
    seen->parts++;
}

static struct tt_train_observer observe(struct seen *seen)
{
    return (struct tt_train_observer){seen, on_message, on_progress, on_log, on_save, on_step_part};
}

/* Training lowers the loss, evaluation with the adapter sees it, and the adapter is a folder that loads. */
static void trains_and_evaluates(void **state)
{
    struct place *place = *state;
    struct seen seen = {0};
    struct tt_train_observer observer = observe(&seen);
    struct tt_train_summary summary;
    struct tt_job *job = make_training(place, "12");
    check_ok(tt_job_train(job, &observer, &summary));
    assert_int_equal(summary.steps, 12);
    assert_int_equal(seen.steps, 12);
    assert_true(seen.messages > 5 && seen.rows >= 2 && seen.saves >= 1);
    assert_true(seen.parts >= 1);
    assert_false(summary.stopped);
    assert_string_equal(summary.output, place->output);
    tt_job_destroy(job);

    struct tt_eval_result before, after;
    job = make_job(place);
    check_ok(tt_job_set(job, "eval_dataset", place->data));
    check_ok(tt_job_evaluate(job, NULL, &before));
    assert_int_equal(before.samples, 24);
    assert_int_equal(before.exact_matches, -1);
    tt_job_destroy(job);
    job = make_job(place);
    check_ok(tt_job_set(job, "eval_dataset", place->data));
    check_ok(tt_job_set(job, "adapter_name_or_path", place->output));
    check_ok(tt_job_set(job, "exact_match", "true"));
    check_ok(tt_job_set(job, "max_new_tokens", "4"));
    check_ok(tt_job_evaluate(job, NULL, &after));
    tt_job_destroy(job);
    assert_true(after.loss < 0.9 * before.loss);
    assert_true(after.exact_matches >= 0);
    assert_int_equal(after.exact_rows, 24);
}

static void stops_on_request(void **state)
{
    struct place *place = *state;
    struct seen seen = {.stop_at = 2, .stops = 1};
    struct tt_train_observer observer = observe(&seen);
    struct tt_train_summary summary;
    seen.job = make_training(place, "50");
    assert_int_equal(tt_job_train(seen.job, &observer, &summary), TT_ERR_CANCELLED);
    assert_true(summary.stopped);
    assert_in_range(summary.steps, 2, 3);
    assert_int_equal(tt_job_train(seen.job, &observer, &summary), TT_ERR_CANCELLED);
    tt_job_destroy(seen.job);
    char checkpoint[400];
    snprintf(checkpoint, sizeof checkpoint, "%s/checkpoint-%d/adapter_model.safetensors", place->output,
             (int)summary.steps);
    assert_int_equal(access(checkpoint, R_OK), 0);
}

/* One rank is told while the others may already wait for it in the next step: nobody hangs. */
static void stops_at_once(void **state)
{
    struct place *place = *state;
    struct seen seen = {.stop_at = 2, .stops = 2};
    struct tt_train_observer observer = observe(&seen);
    struct tt_train_summary summary;
    seen.job = make_training(place, "50");
    check_ok(tt_job_set(seen.job, "ranks", "4"));
    check_ok(tt_job_set(seen.job, "per_device_train_batch_size", "1"));
    assert_int_equal(tt_job_train(seen.job, &observer, &summary), TT_ERR_CANCELLED);
    assert_in_range(seen.steps, 2, 3);
    tt_job_destroy(seen.job);
}

static void stop_job(void *context, const char *line)
{
    (void)line;
    tt_job_stop(context);
}

static void stops_evaluations(void **state)
{
    struct place *place = *state;
    struct tt_eval_result result;
    struct tt_job *job = make_job(place);
    struct tt_train_observer observer = {.context = job, .on_message = stop_job};
    check_ok(tt_job_set(job, "eval_dataset", place->data));
    check_ok(tt_job_set(job, "ranks", "3"));
    assert_int_equal(tt_job_evaluate(job, &observer, &result), TT_ERR_CANCELLED);
    tt_job_destroy(job);
}

static void settings_are_checked(void **state)
{
    struct place *place = *state;
    struct tt_job *job = NULL;
    const char *yaml;
    static const char text[] = "model_name_or_path: somewhere\ndataset_name: rows.jsonl\nlora_r: 4\n";
    check_ok(tt_job_create(&job));
    tt_error_clear();
    assert_int_equal(tt_error_status(tt_error_last()), TT_OK);
    assert_int_equal(tt_job_set(job, "learning_rat", "1"), TT_ERR_USAGE);
    const struct tt_error *error = tt_error_last();
    assert_int_equal(tt_error_status(error), TT_ERR_USAGE);
    assert_non_null(strstr(tt_error_message(error), "learning_rat"));
    assert_non_null(strstr(tt_error_hint(error), "learning_rate"));
    assert_null(tt_error_context(error, 0));
    assert_null(tt_error_context(error, -1));
    assert_int_equal(tt_job_parse_yaml(job, "a: [1", 5, "inline"), TT_ERR_USAGE);
    assert_non_null(strstr(tt_error_message(tt_error_last()), "inline"));
    assert_int_equal(tt_job_read_yaml(job, "/nowhere.yaml"), TT_ERR_DATA);
    assert_int_equal(tt_job_read_accelerate(job, "/nowhere.yaml"), TT_ERR_DATA);
    check_ok(tt_job_parse_yaml(job, text, sizeof text - 1, "inline"));
    check_ok(tt_job_set(job, "lora_r", "32"));
    check_ok(tt_job_set(job, "max_new_tokens", "7"));
    check_ok(tt_job_describe(job, &yaml));
    assert_non_null(strstr(yaml, "\nlora_r: 32"));
    assert_non_null(strstr(yaml, "\ndataset_name: rows.jsonl  # inline line 2"));
    assert_null(strstr(yaml, "max_new_tokens")); /* `trimtab train --config` must be able to read it */
    assert_int_equal(tt_job_set(job, "lora_r", "8"), TT_ERR_USAGE);
    assert_non_null(strstr(tt_error_message(tt_error_last()), "resolved"));
    tt_job_destroy(job);

    struct tt_train_summary summary;
    job = make_job(place);
    assert_int_equal(tt_job_train(job, NULL, &summary), TT_ERR_USAGE); /* no data */
    tt_job_destroy(job);
    struct tt_eval_result result;
    job = make_job(place);
    assert_int_equal(tt_job_evaluate(job, NULL, &result), TT_ERR_USAGE);
    tt_job_destroy(job);
    tt_job_destroy(NULL);
    tt_completer_destroy(NULL);
    tt_codec_close(NULL);
}

struct texts {
    char data[8][512];
    int pieces;
    int stop_at; /* pieces */
};

static bool collect(void *context, int index, const char *text, size_t bytes)
{
    struct texts *texts = context;
    assert_in_range(index, 0, 7);
    assert_true(bytes > 0 && strlen(texts->data[index]) + bytes < sizeof texts->data[0]);
    strncat(texts->data[index], text, bytes);
    texts->pieces++;
    return texts->stop_at == 0 || texts->pieces < texts->stop_at;
}

static struct tt_completer *make_completer(struct tt_job *job, const char *batch)
{
    struct tt_completer *completer = NULL;
    check_ok(tt_job_set(job, "max_new_tokens", "24"));
    check_ok(tt_job_set(job, "ignore_eos", "true"));
    check_ok(tt_job_set(job, "per_device_eval_batch_size", batch));
    check_ok(tt_completer_create(job, &completer));
    return completer;
}

/* Greedy completions do not depend on how many are made at once, on their order, or on an earlier call. */
static void completes_alone_and_together(void **state)
{
    static const char *const prompts[] = {"1 + 1 =", "\xC3\xA9t\xC3\xA9", "a longer prompt, for the cache",
                                          "z", "12"};
    enum { COUNT = sizeof prompts / sizeof *prompts };
    struct texts together = {0}, again = {0}, alone = {0}, cut = {.stop_at = 1};
    struct tt_job *job = make_job(*state), *single_job = make_job(*state);
    struct tt_completer *completer = make_completer(job, "2"), *single = make_completer(single_job, "1");
    check_ok(tt_completer_run(completer, prompts, COUNT, collect, &together));
    check_ok(tt_completer_run(completer, prompts, COUNT, collect, &again));
    for (int i = 0; i < COUNT; i++) {
        struct texts one = {0};
        check_ok(tt_completer_run(single, &prompts[i], 1, collect, &one));
        strcpy(alone.data[i], one.data[0]);
    }
    assert_true(together.pieces > COUNT); /* it streams */
    for (int i = 0; i < COUNT; i++) {
        assert_string_equal(together.data[i], again.data[i]);
        assert_string_equal(together.data[i], alone.data[i]);
    }
    check_ok(tt_completer_run(single, prompts, 1, collect, &cut));
    assert_int_equal(cut.pieces, 1);
    check_ok(tt_completer_run(single, prompts, COUNT, NULL, NULL));
    check_ok(tt_completer_run(single, prompts, 0, collect, &cut));
    tt_completer_destroy(single);
    tt_job_destroy(single_job);
    tt_completer_destroy(completer);
    tt_job_destroy(job);
}

static void refuses_prompts(void **state)
{
    static char long_prompt[2000];
    const char *prompts[] = {"fine", "", long_prompt};
    struct texts texts = {0};
    struct tt_job *job = make_job(*state);
    memset(long_prompt, 'x', sizeof long_prompt - 1);
    struct tt_completer *completer = make_completer(job, "1");
    assert_int_equal(tt_completer_run(completer, prompts + 1, 1, collect, &texts), TT_ERR_DATA);
    assert_int_equal(tt_completer_run(completer, prompts + 2, 1, collect, &texts), TT_ERR_DATA);
    assert_int_equal(texts.pieces, 0);
    assert_int_equal(tt_completer_run(completer, prompts, 3, collect, &texts), TT_ERR_DATA);
    assert_non_null(strstr(tt_error_context(tt_error_last(), 0), "completing prompt 2"));
    assert_int_equal(texts.pieces, 0);
    tt_job_stop(job);
    assert_int_equal(tt_completer_run(completer, prompts, 1, collect, &texts), TT_ERR_CANCELLED);
    tt_completer_destroy(completer);
    tt_job_destroy(job);
}

static void encodes_and_decodes(void **state)
{
    static const char text[] = "na\xC3\xAFve 12\n\xF0\x9F\x98\x80";
    struct place *place = *state;
    struct tt_codec *codec = NULL;
    const int32_t *ids;
    const char *back;
    size_t count, bytes;
    check_ok(tt_codec_open(place->model, &codec));
    assert_int_equal(tt_codec_vocab_size(codec), 259);
    assert_int_equal(tt_codec_token_id(codec, "</s>"), 2);
    assert_int_equal(tt_codec_token_id(codec, "nothing"), -1);
    check_ok(tt_codec_encode(codec, text, sizeof text - 1, true, &ids, &count));
    assert_int_equal(count, sizeof text - 1); /* one id a byte */
    check_ok(tt_codec_decode(codec, ids, count, true, &back, &bytes));
    assert_int_equal(bytes, sizeof text - 1);
    assert_string_equal(back, text);
    check_ok(tt_codec_decode(codec, (int32_t[]){2}, 1, false, &back, NULL));
    assert_string_equal(back, "</s>");
    assert_int_equal(tt_codec_encode(codec, "\xFF", 1, true, &ids, &count), TT_ERR_DATA);
    check_ok(tt_codec_decode(codec, (int32_t[]){4000, 2, -1}, 3, false, &back, &bytes));
    assert_string_equal(back, "</s>"); /* ids without a token add nothing */
    tt_codec_close(codec);
    assert_int_not_equal(tt_codec_open("/nowhere", &codec), TT_OK);
    assert_string_equal(tt_version(), TT_VERSION);
    assert_string_equal(tt_status_name(TT_ERR_USAGE), "USAGE");
}

static void note_line(void *context, enum tt_log_level level, const char *line)
{
    (void)level;
    snprintf(context, 400, "%s", line);
}

static void tells_the_log(void **state)
{
    char line[400] = "";
    const char *yaml;
    struct tt_job *job = make_training(*state, "1");
    tt_log_set_sink(note_line, line);
    check_ok(tt_job_set(job, "dataloader_num_workers", "4"));
    check_ok(tt_job_describe(job, &yaml));
    tt_log_set_sink(NULL, NULL);
    assert_non_null(strstr(line, "dataloader_num_workers is accepted without effect"));
    tt_job_destroy(job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(trains_and_evaluates, make_place, remove_place),
        cmocka_unit_test_setup_teardown(stops_on_request, make_place, remove_place),
        cmocka_unit_test_setup_teardown(stops_at_once, make_place, remove_place),
        cmocka_unit_test_setup_teardown(stops_evaluations, make_place, remove_place),
        cmocka_unit_test_setup_teardown(settings_are_checked, make_place, remove_place),
        cmocka_unit_test_setup_teardown(completes_alone_and_together, make_place, remove_place),
        cmocka_unit_test_setup_teardown(refuses_prompts, make_place, remove_place),
        cmocka_unit_test_setup_teardown(encodes_and_decodes, make_place, remove_place),
        cmocka_unit_test_setup_teardown(tells_the_log, make_place, remove_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
