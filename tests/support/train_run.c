#include "support/train_run.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "io/safetensors.h"
#include "job/settings.h"
#include "support/program.h"
#include "support/temporary.h"

char *test_folder_create(void)
{
    char template[256];
    test_temporary(template, sizeof template, "trimtab-test-XXXXXX");
    if (mkdtemp(template) == NULL) fail_msg("cannot make a temporary folder");
    return tt_strdup(template);
}

void test_folder_remove(char *folder)
{
    assert_int_equal(tt_dir_remove(folder), TT_OK);
    tt_free(folder);
}

static void add_word(struct test_words *words, const char *before, const char *word, size_t word_bytes)
{
    int capacity = (int)(sizeof words->list / sizeof *words->list);
    size_t bytes = strlen(before) + word_bytes + 1;
    if (words->count + 1 >= capacity || words->bytes + bytes > sizeof words->text) fail_msg("too many words");
    char *to = words->text + words->bytes;
    snprintf(to, bytes, "%s%.*s", before, (int)word_bytes, word);
    words->list[words->count++] = to;
    words->bytes += bytes;
}

void test_words_add(struct test_words *words, const char *text)
{
    for (text += strspn(text, " "); *text != '\0'; text += strspn(text, " ")) {
        bool quoted = *text == '\'';
        if (quoted) text++;
        size_t bytes = strcspn(text, quoted ? "'" : " ");
        add_word(words, "", text, bytes);
        text += bytes + (quoted && text[bytes] == '\'');
    }
}

void test_words_pair(struct test_words *words, const char *name, const char *value)
{
    add_word(words, "", name, strlen(name));
    add_word(words, "", value, strlen(value));
}

void test_words_command(struct test_words *command_line, const char *program, const char *command,
                        const struct test_words *words)
{
    add_word(command_line, "", program, strlen(program));
    add_word(command_line, "", command, strlen(command));
    for (int i = 0; i < words->count; i++)
        add_word(command_line, i % 2 == 0 ? "--" : "", words->list[i], strlen(words->list[i]));
}

void test_words_shell(const struct test_words *words, char *text, size_t text_bytes)
{
    for (int i = 0; i < words->count; i++) {
        size_t bytes = strlen(text);
        int written = snprintf(text + bytes, text_bytes - bytes, " '%s'", words->list[i]);
        assert_true(written > 0 && (size_t)written < text_bytes - bytes);
    }
}

void test_words_two_ranks(struct test_words *command, const char *first, const char *second)
{
    char script[7000];
    int written = snprintf(script, sizeof script,
                           "if [ \"${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}\" = 0 ]; then %s; else %s; fi",
                           first, second);
    assert_true(written > 0 && (size_t)written < sizeof script);
    test_words_add(command, TEST_MPIRUN " -np 2 sh");
    test_words_pair(command, "-c", script);
}

tt_status test_train(const char *const *pairs, const char *output_dir, struct tt_train_summary *summary)
{
    return test_train_watched(pairs, output_dir, NULL, NULL, summary);
}

tt_status test_train_watched(const char *const *pairs, const char *output_dir,
                             const struct tt_train_observer *observer, struct tt_cancel *cancel,
                             struct tt_train_summary *summary)
{
    struct tt_train_config config = {0};
    struct tt_settings *settings = NULL;
    tt_status status = TT_OK;
    TT_GO(tt_settings_create(tt_train_sections, tt_train_section_count, &config, sizeof config, &settings));
    TT_GO(tt_settings_set(settings, "output_dir", output_dir, "test"));
    TT_GO(tt_settings_set(settings, "report_to", "none", "test"));
    TT_GO(tt_settings_set(settings, "overwrite_output_dir", "true", "test"));
    for (; *pairs != NULL; pairs += 2) TT_GO(tt_settings_set(settings, pairs[0], pairs[1], "test"));
    TT_GO(tt_train_settings_resolve(settings, &config));
    TT_GO(tt_trainer_run(&config, settings, observer, cancel, summary));
out:
    tt_settings_destroy(settings);
    return status;
}

void test_train_ok(const char *const *pairs, const char *output_dir, struct tt_train_summary *summary)
{
    if (test_train(pairs, output_dir, summary) == TT_OK) return;
    char text[2048];
    tt_error_format(tt_error_last(), text, sizeof text);
    fail_msg("%s", text);
}

static tt_status evaluate(const char *const *pairs, bool exact_match, struct tt_eval_result *result)
{
    struct tt_train_config config = {0};
    struct tt_settings *settings = NULL;
    struct tt_eval_options options = {.exact_match = exact_match, .max_new_tokens = 16};
    tt_status status = TT_OK;
    TT_GO(tt_settings_create(tt_train_sections, tt_train_section_count, &config, sizeof config, &settings));
    for (; *pairs != NULL; pairs += 2) TT_GO(tt_settings_set(settings, pairs[0], pairs[1], "test"));
    config.use_peft = config.lora.enabled = config.adapter_name_or_path != NULL;
    TT_GO(tt_evaluate_run(&config, &options, NULL, NULL, result));
out:
    tt_settings_destroy(settings);
    return status;
}

void test_evaluate_ok(const char *const *pairs, bool exact_match, struct tt_eval_result *result)
{
    if (evaluate(pairs, exact_match, result) == TT_OK) return;
    char text[2048];
    tt_error_format(tt_error_last(), text, sizeof text);
    fail_msg("%s", text);
}

int test_read_log(const char *output_dir, const char *name, double *values, int capacity)
{
    struct tt_json json = {0};
    char *path = tt_path_join(output_dir, "trainer_state.json");
    assert_int_equal(tt_json_read(path, 1 << 26, &json), TT_OK);
    const struct tt_json_value *history = tt_json_get(json.root, "log_history");
    int count = 0;
    for (size_t i = 0; i < tt_json_count(history) && count < capacity; i++) {
        const struct tt_json_value *value = tt_json_get(tt_json_at(history, i), name);
        if (value != NULL) values[count++] = tt_json_number(value);
    }
    tt_json_deinit(&json);
    tt_free(path);
    return count;
}

static double relative_error(const struct tt_safetensors *a, const struct tt_safetensors *b,
                             const struct tt_safetensors_entry *wanted)
{
    const struct tt_safetensors_entry *got = tt_safetensors_find(a, wanted->name);
    if (got == NULL) fail_msg("'%s' is missing", wanted->name);
    assert_int_equal(got->rank, wanted->rank);
    int64_t count = 1;
    for (int d = 0; d < got->rank; d++) {
        assert_int_equal(got->dims[d], wanted->dims[d]);
        count *= got->dims[d];
    }
    float *x = tt_calloc((size_t)count, sizeof *x), *y = tt_calloc((size_t)count, sizeof *y);
    assert_int_equal(tt_safetensors_read(a, got, 0, count, x, TT_F32), TT_OK);
    assert_int_equal(tt_safetensors_read(b, wanted, 0, count, y, TT_F32), TT_OK);
    double error = 0.0, norm = 0.0;
    for (int64_t i = 0; i < count; i++) {
        error += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
        norm += (double)y[i] * y[i];
    }
    tt_free(x);
    tt_free(y);
    return norm > 0.0 ? sqrt(error / norm) : sqrt(error);
}

double test_compare_weights(const char *path, const char *reference_path, char *worst_name,
                            size_t worst_bytes)
{
    struct tt_safetensors *a = NULL, *b = NULL;
    assert_int_equal(tt_safetensors_open(path, &a), TT_OK);
    assert_int_equal(tt_safetensors_open(reference_path, &b), TT_OK);
    assert_int_equal(tt_safetensors_count(a), tt_safetensors_count(b));
    double worst = 0.0;
    for (size_t i = 0; i < tt_safetensors_count(b); i++) {
        double error = relative_error(a, b, tt_safetensors_entry(b, i));
        if (error < worst) continue;
        worst = error;
        snprintf(worst_name, worst_bytes, "%s", tt_safetensors_entry(b, i)->name);
    }
    tt_safetensors_close(a);
    tt_safetensors_close(b);
    return worst;
}

void test_same_file(const char *a, const char *b)
{
    struct tt_str x = {0}, y = {0};
    assert_int_equal(tt_file_read(a, (size_t)1 << 30, &x), TT_OK);
    assert_int_equal(tt_file_read(b, (size_t)1 << 30, &y), TT_OK);
    if (x.bytes != y.bytes || memcmp(x.data, y.data, x.bytes) != 0) fail_msg("'%s' and '%s' differ", a, b);
    tt_str_deinit(&x);
    tt_str_deinit(&y);
}
