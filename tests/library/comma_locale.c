/* The library in a program whose locale writes 0,5: settings, YAML, JSON, messages and files are as in the C
 * locale. */
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "trimtab.h"

static void run_shell(const char *command)
{
    if (system(command) != 0) fail_msg("%s", command);
}

static void check_ok(tt_status status)
{
    char text[2048];
    if (status == TT_OK) return;
    tt_error_format(tt_error_last(), text, sizeof text);
    fail_msg("%s", text);
}

/* A number in a message has a decimal point: a comma stands between digits only as in "1,234,567". */
static void on_message(void *context, const char *line)
{
    (void)context;
    for (const char *at = line; *at != '\0'; at++) {
        size_t digits = *at == ',' ? strspn(at + 1, "0123456789") : 0;
        if (digits > 0 && at > line && at[-1] >= '0' && at[-1] <= '9' && digits != 3) fail_msg("%s", line);
    }
}

/* Trains into `output`; `described` gets all settings as text. */
static void train(const char *folder, const char *output, char *described, size_t described_bytes)
{
    static const char yaml[] = "learning_rate: 2.5e-3\nlora_dropout: 0.05\nlora_alpha: 1.5\n";
    struct tt_train_observer observer = {.on_message = on_message};
    struct tt_train_summary summary;
    struct tt_job *job = NULL;
    const char *text;
    char path[256];
    check_ok(tt_job_create(&job));
    check_ok(tt_job_parse_yaml(job, yaml, sizeof yaml - 1, "test"));
    check_ok(tt_job_set(job, "weight_decay", "0.125"));
    check_ok(tt_job_set(job, "device_memory", "1.5GiB"));
    check_ok(tt_job_set(job, "threads", "1"));
    check_ok(tt_job_set(job, "max_steps", "2"));
    check_ok(tt_job_set(job, "logging_steps", "1"));
    check_ok(tt_job_set(job, "report_to", "none"));
    snprintf(path, sizeof path, "%s/model", folder);
    check_ok(tt_job_set(job, "model_name_or_path", path));
    snprintf(path, sizeof path, "%s/train.jsonl", folder);
    check_ok(tt_job_set(job, "dataset_name", path));
    snprintf(path, sizeof path, "%s/%s", folder, output);
    check_ok(tt_job_set(job, "output_dir", path));
    check_ok(tt_job_describe(job, &text));
    const char *own = strstr(text, "output_dir:"), *rest = own != NULL ? strchr(own, '\n') : NULL;
    assert_non_null(rest); /* the one line that differs */
    snprintf(described, described_bytes, "%.*s%s", (int)(own - text), text, rest);
    check_ok(tt_job_train(job, &observer, &summary));
    assert_int_equal(summary.steps, 2);
    tt_job_destroy(job);
}

/* The text of the error for a number that is none. */
static void provoke(char *text, size_t text_bytes)
{
    struct tt_job *job = NULL;
    check_ok(tt_job_create(&job));
    assert_int_not_equal(tt_job_set(job, "lora_dropout", "0,5"), TT_OK);
    tt_error_format(tt_error_last(), text, text_bytes);
    tt_job_destroy(job);
}

static int remove_folder(void **state)
{
    char command[512];
    snprintf(command, sizeof command, "rm -rf '%s'", (char *)*state);
    run_shell(command);
    return 0;
}

/* A locale with a comma: made in `folder`, or one that is installed. */
static bool enter_comma_locale(const char *folder)
{
    static const char *const names[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "es_ES.UTF-8"};
    char command[256];
    snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 '%s/de_DE.UTF-8' >/dev/null 2>&1", folder);
    if (system(command) == 0) setenv("LOCPATH", folder, 1);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (setlocale(LC_ALL, names[i]) != NULL && localeconv()->decimal_point[0] == ',') return true;
    setlocale(LC_ALL, "C");
    return false;
}

static void same_in_a_comma_locale(void **state)
{
    const char *folder = *state;
    static char before[1 << 16], after[1 << 16], error_before[2048], error_after[2048];
    char command[1024];
    train(folder, "plain", before, sizeof before);
    provoke(error_before, sizeof error_before);
    if (!enter_comma_locale(folder)) {
        printf("skipped: no locale with a decimal comma (Debian's package locales has the source of one)\n");
        remove_folder(state);
        exit(77);
    }
    char half[8];
    snprintf(half, sizeof half, "%.1f", 0.5);
    assert_string_equal(half, "0,5");
    train(folder, "comma", after, sizeof after);
    provoke(error_after, sizeof error_after);
    setlocale(LC_ALL, "C");
    assert_string_equal(before, after);
    assert_string_equal(error_before, error_after);
    snprintf(command, sizeof command,
             "cd '%s' && cmp plain/adapter_model.safetensors comma/adapter_model.safetensors && "
             "cmp plain/adapter_config.json comma/adapter_config.json && "
             "! grep -rlE '[0-9],[0-9]' --include='*.json*' --include='*.yaml' comma | grep -v tokenizer",
             folder);
    run_shell(command);
}

static int make_folder(void **state)
{
    static char folder[256];
    char command[2048];
    const char *temporary = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/trimtab-comma-XXXXXX", temporary != NULL ? temporary : "/tmp");
    if (mkdtemp(folder) == NULL) return -1;
    snprintf(command, sizeof command,
             "cp -r '%s/golden/qwen2/model' '%s' && cp '%s'/support/tiny_tokenizer/* '%s/model' && "
             "for i in 1 2 3 4 5 6 7 8; do echo \"{\\\"prompt\\\": \\\"$i + 1 =\\\", \\\"completion\\\": "
             "\\\" $((i + 1))\\\"}\"; "
             "done >'%s/train.jsonl'",
             TT_TEST_ROOT, folder, TT_TEST_ROOT, folder, folder);
    run_shell(command);
    *state = folder;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(same_in_a_comma_locale, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
