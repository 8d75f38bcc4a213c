/* What people see: the line of progress, the error, exit codes. */
#include <math.h>
#include <stdarg.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli/exit_codes.h"
#include "cli/report.h"

static void bar_fits_every_width(void **state)
{
    struct tt_progress progress = {.step = 123,
                                   .max_steps = 1000,
                                   .epoch = 0.37,
                                   .loss = 1.2345,
                                   .tokens_per_second = 12345,
                                   .seconds_left = 200};
    char text[400];
    (void)state;
    for (int columns = 0; columns < 300; columns++) {
        tt_report_format_bar(&progress, 0, columns, text, sizeof text);
        if ((int)strlen(text) > columns) fail_msg("%d columns: '%s'", columns, text);
    }
    tt_report_format_bar(&progress, 0, 120, text, sizeof text);
    assert_string_equal(text, "[####..........................]  12% 123/1000  loss 1.2345  3m20s left  "
                              "12.3k tokens/s  epoch 0.37");
    tt_report_format_bar(&progress, 0, 40, text, sizeof text);
    assert_string_equal(text, " 12% 123/1000  loss 1.2345  3m20s left");
    progress.step = progress.max_steps = 0;
    progress.loss = NAN;
    progress.tokens_per_second = INFINITY;
    progress.seconds_left = -1;
    tt_report_format_bar(&progress, 0, 80, text, sizeof text);
    assert_non_null(strstr(text, "0% 0/0  loss "));
    assert_null(strstr(text, "left"));
}

/* A report that writes to a file has no bar, no colour and no carriage return. */
static void files_get_plain_lines(void **state)
{
    struct tt_report report;
    char *out = NULL, *err = NULL;
    size_t out_bytes, err_bytes;
    FILE *out_file = tmpfile(), *err_file = tmpfile();
    (void)state;
    assert_true(out_file != NULL && err_file != NULL);
    tt_report_init(&report, out_file, err_file);
    struct tt_train_observer observer = tt_report_observer(&report);
    struct tt_progress progress = {
        .step = 10, .max_steps = 20, .loss = 0.5, .tokens_per_second = 100, .seconds_left = 5};
    observer.on_message(&report, "a fact");
    observer.on_progress(&report, &progress);
    struct tt_log_field fields[] = {{"loss", 0.5}, {"learning_rate", 2e-5}};
    struct tt_log_row row = {.step = 10, .epoch = 0.5, .fields = fields, .field_count = 2};
    observer.on_log(&report, &row);
    tt_report_log(&report, TT_LOG_WARNING, "careful");
    tt_report_log(&report, TT_LOG_DEBUG, "never");
    (void)tt_fail(TT_ERR_DATA, "it is broken");
    tt_while("reading it");
    tt_hint("mend it");
    tt_report_error(&report);
    assert_int_equal(tt_report_print(&report, "result\n"), TT_OK);
    tt_report_deinit(&report);
    err_bytes = (size_t)ftell(err_file);
    out_bytes = (size_t)ftell(out_file);
    err = calloc(1, err_bytes + 1);
    out = calloc(1, out_bytes + 1);
    rewind(err_file);
    rewind(out_file);
    assert_int_equal(fread(err, 1, err_bytes, err_file), err_bytes);
    assert_int_equal(fread(out, 1, out_bytes, out_file), out_bytes);
    assert_string_equal(
        err, "a fact\n"
             "step 10/20  loss 0.5000  learning_rate 2e-05  epoch 0.5000  100 tokens/s  5.0s left\n"
             "warning: careful\n"
             "error: it is broken\n  while reading it\n  hint: mend it\n");
    assert_string_equal(out, "result\n");
    free(err);
    free(out);
    fclose(out_file);
    fclose(err_file);
}

/* Of a file, the text that was written since `from`. */
static const char *written(FILE *file, long from, char *text, size_t text_bytes)
{
    fseek(file, from, SEEK_SET);
    text[fread(text, 1, text_bytes - 1, file)] = 0;
    fseek(file, 0, SEEK_END);
    return text;
}

/* A file hears of a long step after half a minute without a line, then after twice the time. */
static void long_steps_are_not_silent(void **state)
{
    struct tt_report report;
    char text[600];
    FILE *out = tmpfile(), *err = tmpfile();
    (void)state;
    assert_true(out != NULL && err != NULL);
    tt_report_init(&report, out, err);
    struct tt_train_observer observer = tt_report_observer(&report);
    struct tt_progress progress = {.max_steps = 100, .seconds_left = -1};
    observer.on_message(&report, "a fact");
    long at = ftell(err);
    observer.on_step_part(&report, &progress, 0.2);
    assert_string_equal(written(err, at, text, sizeof text), "");
    report.printed_at -= 31;
    observer.on_step_part(&report, &progress, 0.256);
    assert_string_equal(written(err, at, text, sizeof text), "step 1/100  25 % done\n");
    at = ftell(err);
    report.printed_at -= 31;
    progress = (struct tt_progress){
        .step = 7, .max_steps = 100, .loss = 2.5, .tokens_per_second = 12, .seconds_left = 200};
    observer.on_step_part(&report, &progress, 0.5);
    assert_string_equal(written(err, at, text, sizeof text), "");
    report.printed_at -= 30;
    observer.on_step_part(&report, &progress, 0.5);
    assert_string_equal(written(err, at, text, sizeof text),
                        "step 8/100  50 % done  loss 2.5000  3m20s left  12 tokens/s\n");
    for (int i = 0; i < 9; i++) {
        report.printed_at -= 601;
        observer.on_step_part(&report, &progress, 0.5);
    }
    assert_true(report.patience == 600);
    report.json = true;
    at = ftell(err);
    report.printed_at -= 601;
    observer.on_step_part(&report, &progress, 0.5);
    observer.on_step_part(&report, &progress, 0.5);
    assert_non_null(strstr(written(err, at, text, sizeof text), "\"message\": \"step 8/100  50 % done"));
    assert_ptr_equal(strchr(text, '\n'), strrchr(text, '\n'));
    tt_report_deinit(&report);
    fclose(out);
    fclose(err);
}

/* Before the first step the bar has its part alone. */
static void the_bar_moves_within_a_step(void **state)
{
    char text[200];
    struct tt_progress progress = {.max_steps = 2, .seconds_left = -1};
    (void)state;
    assert_string_equal(tt_report_format_bar(&progress, 0.5, 80, text, sizeof text),
                        "[########......................]  25% 0/2  epoch 0.00");
    progress.seconds_left = 200;
    assert_string_equal(tt_report_format_bar(&progress, 0, 80, text, sizeof text),
                        "[..............................]   0% 0/2  3m20s left  epoch 0.00");
}

static void statuses_map_to_exit_codes(void **state)
{
    static const int codes[] = {[TT_OK] = 0,
                                [TT_ERR_USAGE] = 2,
                                [TT_ERR_DATA] = 3,
                                [TT_ERR_IO] = 5,
                                [TT_ERR_MEMORY] = 4,
                                [TT_ERR_DEVICE] = 10,
                                [TT_ERR_COMM] = 10,
                                [TT_ERR_PEER] = 10,
                                [TT_ERR_UNSUPPORTED] = 2,
                                [TT_ERR_CANCELLED] = 11,
                                [TT_ERR_INTERNAL] = 70};
    (void)state;
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        assert_int_equal(tt_exit_code_of((tt_status)i), codes[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bar_fits_every_width),       cmocka_unit_test(files_get_plain_lines),
        cmocka_unit_test(long_steps_are_not_silent),  cmocka_unit_test(the_bar_moves_within_a_step),
        cmocka_unit_test(statuses_map_to_exit_codes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
