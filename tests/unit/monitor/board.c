/* monitor/rows.h, run_figures.h, pictures.h and board.h: files that grow, are torn or written anew; curves that keep
 * their peaks; JSON that stays JSON whatever a run's files say; pictures of the run's folder alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/file.h"
#include "monitor/board.h"
#include "monitor/page.h"
#include "monitor/pictures.h"
#include "support/temporary.h"

static char folder[160], metrics[200];

static int make_folder(void **state)
{
    (void)state;
    test_temporary_of(folder, sizeof folder, "board", (long)getpid(), "");
    assert_int_equal(tt_dir_create(folder), TT_OK);
    snprintf(metrics, sizeof metrics, "%s/metrics.jsonl", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    return tt_dir_remove(folder) == TT_OK ? 0 : -1;
}

static void write_file(const char *mode, const char *text)
{
    FILE *file = fopen(metrics, mode);
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void expect_board(struct tt_run_figures *run, struct tt_json *json)
{
    struct tt_str text = {0};
    assert_int_equal(tt_board_write(run, 1, TT_BOARD_LIVE, &text), TT_OK);
    assert_null(memchr(text.data, '<', text.bytes));
    assert_null(strstr(text.data, "NaN"));
    assert_null(strstr(text.data, "Infinity,"));
    assert_int_equal(tt_json_parse(text.data, text.bytes, "board", json), TT_OK);
    tt_str_deinit(&text);
}

static void a_file_that_grows(void **state)
{
    struct tt_run_figures run;
    const struct tt_series *loss = &run.series[TT_FIGURE_LOSS];
    (void)state;
    remove(metrics);
    assert_int_equal(tt_run_figures_open(folder, &run), TT_OK); /* before the first row */
    assert_int_equal(loss->count, 0);
    write_file("w", "{\"step\": 1, \"loss\": 4.0}\n{\"step\": 2, \"lo");
    assert_int_equal(tt_run_figures_update(&run), TT_OK);
    assert_int_equal(loss->count, 1);
    assert_true(run.rows.torn);
    assert_int_equal(run.broken, 0);
    uint64_t version = run.version;
    assert_int_equal(tt_run_figures_update(&run), TT_OK);
    assert_true(run.version == version);
    write_file("a", "ss\": 3.0}\nnonsense\n{\"step\": 3, \"loss\": 2.0}\n");
    assert_int_equal(tt_run_figures_update(&run), TT_OK);
    assert_int_equal(loss->count, 3);
    assert_int_equal(run.broken, 1);
    assert_false(run.rows.torn);
    assert_true(run.version > version);
    /* A resumed run writes the file again, here to the same length. */
    write_file("w", "{\"step\": 1, \"loss\": 4.0}\n{\"step\": 2, \"loss\": 3.0}\nnonsense\n{\"step\": 3, "
                    "\"loss\": 9.0}\n");
    version = run.version;
    assert_int_equal(tt_run_figures_update(&run), TT_OK);
    assert_int_equal(loss->count, 3);
    assert_true(loss->values[2] == 9.0);
    assert_true(run.version > version);
    assert_int_equal(run.broken, 1);
    tt_run_figures_deinit(&run);
    /* Nobody writes it any more: the last row needs no end. */
    write_file("w", "{\"step\": 1, \"loss\": 4.0}\n{\"step\": 2, \"loss\": 3.0}");
    assert_int_equal(tt_run_figures_read(folder, &run), TT_OK);
    assert_int_equal(loss->count, 2);
    tt_run_figures_deinit(&run);
}

static void odd_rows(void **state)
{
    struct tt_run_figures run;
    struct tt_json json = {0};
    char path[200];
    (void)state;
    write_file(
        "w",
        "{\"step\": 1, \"loss\": NaN, \"step_seconds\": 1.5, \"note\": \"</script> NaN \\\" Infinity\"}\n"
        "{\"step\": 2, \"loss\": -Infinity, \"grad_norm\": 1e999, \"step_seconds\": NaN, \"x\": [NaN, "
        "Infinity]}\n"
        "{\"step\": 3, \"eval_loss\": NaN}\n{\"event\": \"save\", \"seconds\": NaN}\n[1, 2]\n\"text\"\n");
    snprintf(path, sizeof path, "%s/run.json", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("{\"name\": \"<b>\", \"ranks\": [NaN], \"config\": \"\\\\\"}", file);
    fclose(file);
    assert_int_equal(tt_run_figures_open(folder, &run), TT_OK);
    assert_int_equal(run.series[TT_FIGURE_LOSS].count, 0);
    assert_int_equal(run.broken, 2);
    expect_board(&run, &json);
    const struct tt_json_value *shown = tt_json_at(tt_json_get(json.root, "runs"), 0);
    assert_string_equal(tt_json_text(tt_json_get(tt_json_get(shown, "run"), "name")), "<b>");
    assert_string_equal(tt_json_text(tt_json_get(tt_json_get(shown, "run"), "config")), "\\");
    assert_true(tt_json_is_null(tt_json_get(tt_json_get(shown, "last"), "loss")));
    assert_int_equal(tt_json_count(tt_json_get(shown, "events")), 1);
    tt_json_deinit(&json);
    file = fopen(path, "w");
    fputs("{\"torn", file);
    fclose(file);
    assert_int_equal(tt_run_figures_update(&run), TT_OK);
    expect_board(&run, &json);
    shown = tt_json_at(tt_json_get(json.root, "runs"), 0);
    assert_true(tt_json_is_null(tt_json_get(shown, "run")));
    tt_json_deinit(&json);
    tt_run_figures_deinit(&run);
    remove(path);
}

static void write_beside(const char *name, const char *text)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* The pictures of the board of one run; `data`: what the last one has as its file, or NULL. */
static void expect_pictures(struct tt_run_figures *run, enum tt_board_use use, size_t count, const char *data)
{
    struct tt_str text = {0};
    struct tt_json json = {0};
    assert_int_equal(tt_board_write(run, 1, use, &text), TT_OK);
    assert_int_equal(tt_json_parse(text.data, text.bytes, "board", &json), TT_OK);
    const struct tt_json_value *pictures =
        tt_json_get(tt_json_at(tt_json_get(json.root, "runs"), 0), "pictures");
    assert_int_equal(tt_json_count(pictures), count);
    const char *last = tt_json_text(tt_json_get(tt_json_at(pictures, count - 1), "data"));
    assert_true((last == NULL) == (data == NULL) && (data == NULL || strcmp(last, data) == 0));
    tt_json_deinit(&json);
    tt_str_deinit(&text);
}

static void pictures_of_a_run(void **state)
{
    static const char *const names[] = {"1-2.jpg", "../1-2.jpg", "1-2.jpg/..", "1-.jpg", "-2.jpg", "1-2.png",
                                        ""};
    struct tt_run_figures run;
    struct tt_str bytes = {0};
    char path[200];
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_int_equal(tt_picture_is_name(names[i]), i == 0);
    snprintf(path, sizeof path, "%s/pictures", folder);
    assert_int_equal(tt_dir_create(path), TT_OK);
    write_file("w", "{\"step\": 2, \"loss\": 4.0}\n");
    write_beside("pictures/1-7.jpg", "one");
    write_beside("pictures/2-7.jpg", "Man");     /* base64: TWFu */
    write_beside("pictures/2-8.jpg", "light w"); /* base64: bGlnaHQgdw== */
    write_beside("pictures.jsonl",
                 "{\"step\": 1, \"file\": \"1-7.jpg\"}\n{\"step\": 2, \"file\": \"2-7.jpg\"}\n"
                 "{\"step\": 2, \"file\": \"../run.json\"}\n{\"step\": 2}\n"
                 "{\"step\": 2, \"file\": \"2-8.jpg\"}\n");
    assert_int_equal(tt_run_figures_open(folder, &run), TT_OK);
    expect_pictures(&run, TT_BOARD_SERVED, 3, NULL);
    expect_pictures(&run, TT_BOARD_ALONE, 2, "bGlnaHQgdw==");
    assert_int_equal(tt_picture_read(folder, "2-7.jpg", &bytes), TT_OK);
    assert_string_equal(tt_str_text(&bytes), "Man");
    assert_int_not_equal(tt_picture_read(folder, "../metrics.jsonl", &bytes), TT_OK);
    assert_int_not_equal(tt_picture_read(folder, "3-7.jpg", &bytes), TT_OK);
    tt_str_deinit(&bytes);
    snprintf(path, sizeof path, "%s/pictures/2-8.jpg", folder);
    remove(path); /* a picture that is gone */
    expect_pictures(&run, TT_BOARD_ALONE, 1, "TWFu");
    tt_run_figures_deinit(&run);
}

static void thin_curves(void **state)
{
    enum { POINTS = 100000, COLUMNS = 100 };
    static double steps[POINTS], values[POINTS];
    size_t indices[2 * COLUMNS + 2];
    struct tt_series series = {steps, values, POINTS, POINTS};
    bool high = false, low = false;
    (void)state;
    for (int i = 0; i < POINTS; i++) {
        steps[i] = i + 1;
        values[i] = 2.0 + i % 7 * 0.01;
    }
    values[54321] = 90;
    values[777] = -5;
    size_t count = tt_board_thin(&series, COLUMNS, indices);
    assert_in_range(count, COLUMNS, 2 * COLUMNS + 2);
    assert_int_equal(indices[0], 0);
    assert_int_equal(indices[count - 1], POINTS - 1);
    for (size_t i = 0; i < count; i++) {
        if (i > 0) assert_true(indices[i] > indices[i - 1]);
        high |= indices[i] == 54321;
        low |= indices[i] == 777;
    }
    assert_true(high && low);
    series.count = 1;
    assert_int_equal(tt_board_thin(&series, COLUMNS, indices), 1);
    series.count = 0;
    assert_int_equal(tt_board_thin(&series, COLUMNS, indices), 0);
}

/* The page draws the figures in the order in which the board names them. */
static void figures_of_preferences(void **state)
{
    static const char *const wanted[] = {"rewards/margins", "rewards/accuracies", "eval_rewards/accuracies",
                                         "rewards/chosen", "rewards/rejected"};
    struct tt_run_figures run;
    struct tt_json board = {0};
    (void)state;
    write_file(
        "w",
        "{\"step\": 1, \"rewards/margins\": 0.5, \"rewards/accuracies\": 0.75, \"rewards/chosen\": 0.25, "
        "\"rewards/rejected\": -0.25}\n{\"step\": 1, \"eval_rewards/accuracies\": 1.0}\n");
    assert_int_equal(tt_run_figures_open(folder, &run), TT_OK);
    expect_board(&run, &board);
    const struct tt_json_value *figures = tt_json_get(board.root, "figures");
    const struct tt_json_value *curves =
        tt_json_get(tt_json_at(tt_json_get(board.root, "runs"), 0), "curves");
    assert_int_equal(tt_json_count(figures), TT_FIGURE_COUNT);
    assert_int_equal(tt_json_count(curves), 5);
    for (size_t i = 0; i < 5; i++) {
        assert_non_null(tt_json_get(curves, wanted[i]));
        assert_string_equal(tt_json_text(tt_json_at(tt_json_at(figures, TT_FIGURE_MARGINS + i), 0)),
                            wanted[i]);
    }
    tt_json_deinit(&board);
    tt_run_figures_deinit(&run);
    remove(metrics);
}

static void the_page(void **state)
{
    struct tt_str page = {0};
    (void)state;
    assert_int_equal(tt_page_write("{\"runs\":[]}", &page), TT_OK);
    assert_in_range(page.bytes, 10000, 200000);
    assert_non_null(strstr(page.data, "id=\"data\">{\"runs\":[]}</script>"));
    assert_null(strchr(page.data, '@') == NULL ? NULL : strstr(page.data, "@data@"));
    for (const char *at = page.data; *at != '\0'; at++) assert_true((unsigned char)*at < 128);
    tt_str_deinit(&page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_that_grows),      cmocka_unit_test(odd_rows),
        cmocka_unit_test(pictures_of_a_run),      cmocka_unit_test(thin_curves),
        cmocka_unit_test(figures_of_preferences), cmocka_unit_test(the_page)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
