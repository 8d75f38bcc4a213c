/* Tables with rows of new tokens: what the files have stays, any run across the border; new rows have the mean and a
 * small share of the covariance of the others, the same in each opening; those of a copy are the copy's. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "io/grown_rows.h"
#include "io/model_folder.h"
#include "support/made_folder.h"

enum { ROWS = 1500, NEW = 1000, DIM = 3, ALL = ROWS + NEW };

static const char table_name[] = "model.embed_tokens.weight", head_name[] = "lm_head.weight";
static float table[ROWS * DIM], head[ROWS * DIM], copy[ALL * DIM];
static uint8_t codes[ROWS * DIM];

/* Column 1 follows column 0. */
static void fill(void)
{
    struct tt_rng rng = tt_rng_make(5);
    for (int r = 0; r < ROWS; r++) {
        float *row = table + r * DIM;
        for (int c = 0; c < DIM; c++) row[c] = (float)tt_rng_normal(rng, (uint64_t)(r * DIM + c));
        row[1] = 0.05f - row[0] + 0.1f * row[1];
        for (int c = 0; c < DIM; c++) head[r * DIM + c] = 2 * row[c];
    }
    for (int i = 0; i < ALL * DIM; i++) copy[i] = (float)i;
}

static struct tt_model_folder *open_folder(const char *name)
{
    struct tt_model_folder *folder = NULL;
    ok(tt_model_folder_open(test_at(name), true, &folder));
    return folder;
}

static void make(const char *name)
{
    const struct made made[] = {
        {{.name = table_name, .dtype = TT_F32, .rank = 2, .dims = {ROWS, DIM}}, table},
        {{.name = head_name, .dtype = TT_F32, .rank = 2, .dims = {ROWS, DIM}}, head},
        {{.name = "model.norm.weight", .dtype = TT_F32, .rank = 1, .dims = {DIM}}, table}};
    put_folder(name, "{}", made, 3);
}

static const struct tt_growth growth = {
    .rows = ALL, .tables = {{.name = "model.embed_tokens.weight"}, {.name = "lm_head.weight"}}};

static void read_all(const struct tt_model_folder *folder, const char *name, float *to)
{
    const struct tt_safetensors_entry *entry = tt_model_folder_find(folder, name);
    assert_non_null(entry);
    assert_int_equal(entry->dims[0], ALL);
    ok(tt_model_folder_read(folder, entry, 0, ALL * DIM, to, TT_F32));
}

static void rows_of_the_files_stay(void **state)
{
    (void)state;
    static float all[ALL * DIM], part[ALL * DIM];
    make("plain");
    struct tt_model_folder *folder = open_folder("plain");
    ok(tt_model_folder_grow(folder, &growth));
    read_all(folder, table_name, all);
    assert_memory_equal(all, table, sizeof table);
    const struct tt_safetensors_entry *entry = tt_model_folder_find(folder, table_name);
    static const int64_t runs[][2] = {
        {0, 7}, {ROWS * DIM - 5, 11}, {ROWS * DIM, 4}, {ALL * DIM - 2, 2}, {ROWS * DIM - 3, 3}};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        ok(tt_model_folder_read(folder, entry, runs[i][0], runs[i][1], part, TT_F32));
        assert_memory_equal(part, all + runs[i][0], (size_t)runs[i][1] * sizeof *part);
    }
    assert_string_equal(tt_model_folder_find(folder, "model.norm.weight")->name, "model.norm.weight");
    assert_int_equal(tt_model_folder_find(folder, "model.norm.weight")->dims[0], DIM);
    struct tt_model_folder *again = open_folder("plain");
    ok(tt_model_folder_grow(again, &growth));
    read_all(again, table_name, part);
    assert_memory_equal(part, all, sizeof all);
    tt_model_folder_close(again);
    tt_model_folder_close(folder);
}

static void moments(const float *rows, int count, double mean[DIM], double product[DIM][DIM])
{
    memset(mean, 0, DIM * sizeof *mean);
    memset(product, 0, DIM * sizeof *product);
    for (int r = 0; r < count; r++)
        for (int c = 0; c < DIM; c++) mean[c] += (double)rows[r * DIM + c] / count;
    for (int r = 0; r < count; r++)
        for (int a = 0; a < DIM; a++)
            for (int b = 0; b < DIM; b++)
                product[a][b] +=
                    ((double)rows[r * DIM + a] - mean[a]) * ((double)rows[r * DIM + b] - mean[b]) / count;
}

static void new_rows_have_mean_and_covariance(void **state)
{
    (void)state;
    static float all[ALL * DIM];
    double mean[2][DIM], product[2][DIM][DIM];
    make("moments");
    struct tt_model_folder *folder = open_folder("moments");
    ok(tt_model_folder_grow(folder, &growth));
    for (int t = 0; t < 2; t++) {
        read_all(folder, t == 0 ? table_name : head_name, all);
        moments(all, ROWS, mean[0], product[0]);
        moments(all + ROWS * DIM, NEW, mean[1], product[1]);
        for (int a = 0; a < DIM; a++) {
            double deviation = sqrt(1e-9 * product[0][a][a]);
            assert_true(fabs(mean[1][a] - mean[0][a]) < 5 * deviation / sqrt(NEW));
            for (int b = 0; b < DIM; b++) {
                double scale = 1e-9 * sqrt(product[0][a][a] * product[0][b][b]);
                if (fabs(product[1][a][b] - 1e-9 * product[0][a][b]) > 0.25 * scale)
                    fail_msg("table %d: covariance %d %d is %.3g, not %.3g", t, a, b, product[1][a][b],
                             1e-9 * product[0][a][b]);
            }
        }
    }
    tt_model_folder_close(folder);
}

static void rows_of_a_copy_are_its_own(void **state)
{
    (void)state;
    static float all[ALL * DIM];
    const struct made made = {{.name = "a", .dtype = TT_F32, .rank = 2, .dims = {ALL, DIM}}, copy};
    make("copied");
    put_folder("copy", "{}", &made, 1);
    struct tt_model_folder *folder = open_folder("copied"), *from = open_folder("copy");
    const struct tt_safetensors_entry *entry = tt_model_folder_find(from, "a");
    struct tt_growth copied = growth;
    copied.tables[0].entry = entry;
    copied.tables[0].copy = tt_model_folder_file(from, entry);
    ok(tt_model_folder_grow(folder, &copied));
    read_all(folder, table_name, all);
    assert_memory_equal(all, table, sizeof table);
    assert_memory_equal(all + ROWS * DIM, copy + ROWS * DIM, NEW * DIM * sizeof *copy);
    tt_model_folder_close(folder);
    folder = open_folder("copied");
    copied.rows = ALL + 1;
    assert_int_equal(tt_model_folder_grow(folder, &copied), TT_ERR_DATA);
    assert_non_null(strstr(tt_error_last()->message, "is not a table of 2501 rows and 3 columns"));
    tt_model_folder_close(folder);
    tt_model_folder_close(from);
}

static void codes_are_refused(void **state)
{
    (void)state;
    const struct made made = {{.name = table_name, .dtype = TT_U8, .rank = 2, .dims = {ROWS, DIM}}, codes};
    put_folder("codes", "{}", &made, 1);
    struct tt_model_folder *folder = open_folder("codes");
    assert_int_equal(tt_model_folder_grow(folder, &growth), TT_ERR_UNSUPPORTED);
    assert_non_null(
        strstr(tt_error_last()->message, "is not stored as a matrix of numbers, and gets no rows"));
    tt_model_folder_close(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_the_files_stay),
        cmocka_unit_test(new_rows_have_mean_and_covariance),
        cmocka_unit_test(rows_of_a_copy_are_its_own),
        cmocka_unit_test(codes_are_refused),
    };
    fill();
    return cmocka_run_group_tests(tests, test_root_create, test_root_remove);
}
