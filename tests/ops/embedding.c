#include "backend/ops/embedding.h"

#include <stdlib.h>

#include "ops/isa.h"

struct embedding_case {
    int64_t words, width, tokens, gap;
    tt_dtype table, output;
};

static const struct embedding_case cases[] = {
    {50, 64, 20, 0, TT_F32, TT_F32},   {50, 64, 20, 0, TT_BF16, TT_BF16},  {50, 67, 200, 3, TT_F32, TT_BF16},
    {50, 67, 200, 3, TT_BF16, TT_F32}, {7, 300, 1000, 1, TT_F32, TT_BF16}, {1, 1, 5, 0, TT_F32, TT_F32},
    {9, 1000, 90, 0, TT_BF16, TT_F32}, {9, 16, 0, 0, TT_F32, TT_F32},
};

static const struct embedding_case gpu_cases[] = {
    {9000, 1024, 1000, 0, TT_BF16, TT_BF16},
    {300, 2048, 2049, 0, TT_BF16, TT_BF16}, /* every id several times */
    {5001, 897, 1501, 1, TT_BF16, TT_BF16},
    {3, 512, 6000, 0, TT_F32, TT_F32},
};

struct problem {
    const struct embedding_case *row;
    struct test_tensor table, ids, y, dy, dtable, first_dtable;
    double *exact_y, *exact_dtable, *simple_dtable;
};

static void check_run(struct test_device *device, int threads, void *context)
{
    struct problem *p = context;
    struct test_tensor y = test_tensor_copy(&p->y), dtable = test_tensor_copy(&p->dtable);
    test_tensor_poison(&y);
    TEST_TO_DEVICE(device, &p->table, &p->ids, &p->dy, &y, &dtable);
    struct tt_embedding_forward_args forward = {
        .table_VD = p->table.view, .ids_T = p->ids.view, .y_TD = y.view};
    struct tt_embedding_backward_args backward = {
        .dy_TD = p->dy.view, .ids_T = p->ids.view, .dtable_VD = dtable.view};
    test_ok(tt_embedding_forward(device->stream, &forward));
    test_ok(tt_embedding_backward(device->stream, &backward));
    TEST_TO_HOST(device, &p->table, &p->ids, &p->dy, &y, &dtable);
    test_tensor_check_gaps("y", &y);
    double *got = test_tensor_values(&y);
    assert_memory_equal(got, p->exact_y, (size_t)tt_tensor_count(y.view) * sizeof *got);
    free(got);
    test_check_result("dtable", dtable, threads, p->exact_dtable, p->simple_dtable, 3, &p->first_dtable);
    test_tensor_free(&y);
}

/* A table in two parts: each call writes the rows of its own ids, and leaves the others as they are. */
static void check_parts(struct test_device *device, int threads, void *context)
{
    struct problem *p = context;
    int64_t words = p->row->words, border = words / 3;
    struct test_tensor y = test_tensor_copy(&p->y), before = test_tensor_copy(&p->y);
    double *ids = test_tensor_values(&p->ids), *kept = test_tensor_values(&before);
    (void)threads;
    for (int part = 0; part < 2; part++) {
        TEST_TO_DEVICE(device, &p->table, &p->ids, &y);
        int64_t first = part == 0 ? border : 0, count = part == 0 ? words - border : border;
        struct tt_embedding_forward_args args = {.table_VD = tt_tensor_rows(p->table.view, first, count),
                                                 .ids_T = p->ids.view,
                                                 .y_TD = y.view,
                                                 .first = first,
                                                 .vocab = words};
        test_ok(tt_embedding_forward(device->stream, &args));
        TEST_TO_HOST(device, &p->table, &p->ids, &y);
        double *got = test_tensor_values(&y);
        for (int64_t t = 0; t < p->row->tokens; t++) {
            bool written = part == 1 || (int64_t)ids[t] >= border;
            const double *wanted = (written ? p->exact_y : kept) + t * p->row->width;
            assert_memory_equal(got + t * p->row->width, wanted, (size_t)p->row->width * sizeof *got);
        }
        free(got);
    }
    test_tensor_check_gaps("y", &y);
    free(ids), free(kept);
    test_tensor_free(&y);
    test_tensor_free(&before);
}

static void check_case(const void *row_pointer)
{
    const struct embedding_case *row = row_pointer;
    struct problem p = {.row = row};
    p.table = test_tensor_random(row->table, row->words, row->width, TEST_UNUSED, row->gap, 1, 1);
    p.ids = test_tensor_make(TT_I32, row->tokens, TEST_UNUSED, TEST_UNUSED, 0);
    test_tensor_random_index(&p.ids, 2, row->words);
    p.y = test_tensor_random(row->output, row->tokens, row->width, TEST_UNUSED, row->gap, 3, 1);
    p.dy = test_tensor_random(row->output, row->tokens, row->width, TEST_UNUSED, row->gap, 4, 1);
    p.dtable = test_tensor_random(TT_F32, row->words, row->width, TEST_UNUSED, row->gap, 5, 1);
    double *table = test_tensor_values(&p.table), *ids = test_tensor_values(&p.ids),
           *dy = test_tensor_values(&p.dy);
    p.exact_y = test_tensor_values(&p.y);
    p.exact_dtable = test_tensor_values(&p.dtable);
    p.simple_dtable = test_tensor_values(&p.dtable);
    for (int64_t t = 0; t < row->tokens; t++)
        for (int64_t d = 0; d < row->width; d++) {
            int64_t from = (int64_t)ids[t] * row->width + d, to = t * row->width + d;
            p.exact_y[to] = (double)test_round((float)table[from], row->output);
            p.exact_dtable[from] += dy[to];
            p.simple_dtable[from] = (double)((float)p.simple_dtable[from] + (float)dy[to]);
        }
    test_on_each_isa(check_run, &p);
    if (row->words > 2) test_on_each_isa(check_parts, &p);
    free(table), free(ids), free(dy);
    free(p.exact_y), free(p.exact_dtable), free(p.simple_dtable);
    test_tensor_free(&p.table);
    test_tensor_free(&p.ids);
    test_tensor_free(&p.y);
    test_tensor_free(&p.dy);
    test_tensor_free(&p.dtable);
    test_tensor_free(&p.first_dtable);
}

static void close_to_the_oracle(void **state)
{
    (void)state;
    TEST_CASES("embedding", cases, check_case);
}

static void sizes_of_real_models(void **state)
{
    (void)state;
    TEST_SIZES_ONLY();
    TEST_CASES("embedding", gpu_cases, check_case);
}

/* Elsewhere what is on the device cannot be looked at without waiting for it. */
static void an_id_outside_the_table_is_refused(void **state)
{
    (void)state;
    TEST_CPU_ONLY();
    struct test_device device;
    test_device_open(&device, "cpu", 1);
    struct test_tensor table = test_tensor_random(TT_F32, 5, 4, TEST_UNUSED, 0, 1, 1);
    struct test_tensor y = test_tensor_make(TT_F32, 2, 4, TEST_UNUSED, 0), before = test_tensor_copy(&table);
    struct test_tensor ids = test_tensor_make(TT_I32, 2, TEST_UNUSED, TEST_UNUSED, 0);
    struct tt_embedding_forward_args forward = {.table_VD = table.view, .ids_T = ids.view, .y_TD = y.view};
    struct tt_embedding_backward_args backward = {
        .dy_TD = y.view, .ids_T = ids.view, .dtable_VD = table.view};
    test_tensor_set(&ids, (const double[]){4, 5});
    test_refused(tt_embedding_forward(device.stream, &forward), TT_ERR_DATA,
                 "entry 1 is 5, which is outside 0..4");
    test_refused(tt_embedding_backward(device.stream, &backward), TT_ERR_DATA, "entry 1 is 5");
    forward.vocab = 6;
    test_ok(tt_embedding_forward(device.stream, &forward)); /* 5 is in another part */
    forward.first = 2;
    test_refused(tt_embedding_forward(device.stream, &forward), TT_ERR_INTERNAL, "outside a table of 6 rows");
    forward.first = forward.vocab = 0;
    test_tensor_set(&ids, (const double[]){-1, 0});
    test_refused(tt_embedding_forward(device.stream, &forward), TT_ERR_DATA, "entry 0 is -1");
    test_tensor_equal("table", &table, &before);
    struct tt_gather_rows_args gather = {.x_TD = table.view, .rows_N = ids.view, .y_ND = y.view};
    struct tt_scatter_rows_args scatter = {.x_ND = y.view, .rows_N = ids.view, .y_TD = table.view};
    test_refused(tt_gather_rows(device.stream, &gather), TT_ERR_INTERNAL, "entry 0 is -1");
    test_refused(tt_scatter_rows(device.stream, &scatter), TT_ERR_INTERNAL, "entry 0 is -1");
    test_device_close(&device);
    test_tensor_free(&table);
    test_tensor_free(&before);
    test_tensor_free(&y);
    test_tensor_free(&ids);
}

struct rows_case {
    int64_t tokens, width, gap;
    tt_dtype dtype;
    int32_t rows[8]; /* ends with -1 */
};

static const struct rows_case row_cases[] = {
    {10, 33, 2, TT_F32, {0, 3, 4, 9, -1}},
    {10, 33, 0, TT_BF16, {2, -1}},
    {3, 700, 1, TT_BF16, {0, 1, 2, -1}},
    {400, 200, 0, TT_F32, {7, 100, 101, 399, -1}},
    {80, 4096, 0, TT_BF16, {0, 1, 60, 61, 62, 79, -1}},
    {6, 5, 0, TT_F32, {-1}},
    {0, 5, 0, TT_F32, {-1}},
};

/* scatter(gather(x)) is x in the named rows and 0 in all others; with `keep` the others have the values from before. */
static void check_rows(struct test_device *device, int threads, void *context)
{
    (void)threads;
    const struct rows_case *row = context;
    int64_t count = 0;
    while (row->rows[count] >= 0) count++;
    struct test_tensor x =
        test_tensor_random(row->dtype, row->tokens, row->width, TEST_UNUSED, row->gap, 1, 1);
    struct test_tensor some = test_tensor_random(row->dtype, count, row->width, TEST_UNUSED, row->gap, 2, 1);
    struct test_tensor back =
        test_tensor_random(row->dtype, row->tokens, row->width, TEST_UNUSED, row->gap, 3, 1);
    struct test_tensor rows = test_tensor_make(TT_I32, count, TEST_UNUSED, TEST_UNUSED, 0);
    for (int64_t n = 0; n < count; n++) ((int32_t *)rows.view.data)[n] = row->rows[n];
    struct test_tensor kept =
        test_tensor_random(row->dtype, row->tokens, row->width, TEST_UNUSED, row->gap, 4, 1);
    double *before = test_tensor_values(&kept);
    test_tensor_poison(&some);
    test_tensor_poison(&back);
    TEST_TO_DEVICE(device, &x, &some, &back, &rows, &kept);
    struct tt_gather_rows_args gather = {.x_TD = x.view, .rows_N = rows.view, .y_ND = some.view};
    struct tt_scatter_rows_args scatter = {.x_ND = some.view, .rows_N = rows.view, .y_TD = back.view};
    test_ok(tt_gather_rows(device->stream, &gather));
    test_ok(tt_scatter_rows(device->stream, &scatter));
    scatter.y_TD = kept.view;
    scatter.keep = true;
    test_ok(tt_scatter_rows(device->stream, &scatter));
    TEST_TO_HOST(device, &x, &some, &back, &rows, &kept);
    test_tensor_check_gaps("some", &some);
    test_tensor_check_gaps("back", &back);
    test_tensor_check_gaps("kept", &kept);
    double *in = test_tensor_values(&x), *out = test_tensor_values(&back), *after = test_tensor_values(&kept);
    for (int64_t t = 0, n = 0; t < row->tokens; t++) {
        bool named = n < count && row->rows[n] == t;
        n += named;
        for (int64_t d = t * row->width; d < (t + 1) * row->width; d++) {
            assert_true(out[d] == (named ? in[d] : 0));
            assert_true(after[d] == (named ? in[d] : before[d]));
        }
    }
    free(in), free(out), free(before), free(after);
    test_tensor_free(&kept);
    test_tensor_free(&x);
    test_tensor_free(&some);
    test_tensor_free(&back);
    test_tensor_free(&rows);
}

static void rows_are_moved(void **state)
{
    (void)state;
    TEST_ISA_CASES("rows", row_cases, check_rows);
}

struct token_case {
    int64_t vocab, width, tokens, trained, gap;
    tt_dtype rows, output;
};

static const struct token_case token_cases[] = {
    {9, 33, 40, 4, 1, TT_F32, TT_F32},         {9, 64, 40, 9, 0, TT_F32, TT_BF16},
    {300, 700, 1500, 37, 3, TT_BF16, TT_BF16}, {5, 16, 300, 1, 0, TT_BF16, TT_F32},
    {50, 8, 1, 50, 0, TT_F32, TT_F32},         {7, 5, 0, 3, 0, TT_F32, TT_F32},
};

struct token_problem {
    const struct token_case *row;
    struct test_tensor rows, tokens, ids, y, drows, first_drows, logits, columns;
    int64_t *of; /* by id: the number of the trained row; -1: none */
    double *exact_drows, *simple_drows;
};

/* Every token but those of `of` has the row from before; gradients are sums in the order of the tokens. */
static void check_token_rows(struct test_device *device, int threads, void *context)
{
    struct token_problem *p = context;
    const struct token_case *row = p->row;
    struct test_tensor y = test_tensor_copy(&p->y), drows = test_tensor_copy(&p->drows);
    double *before = test_tensor_values(&p->y), *ids = test_tensor_values(&p->ids),
           *rows = test_tensor_values(&p->rows);
    TEST_TO_DEVICE(device, &p->rows, &p->tokens, &p->ids, &p->y, &y, &drows);
    struct tt_put_token_rows_args put = {
        .rows_KD = p->rows.view, .tokens_K = p->tokens.view, .ids_T = p->ids.view, .y_TD = y.view};
    struct tt_add_token_rows_args add = {
        .dy_TD = p->y.view, .tokens_K = p->tokens.view, .ids_T = p->ids.view, .drows_KD = drows.view};
    test_ok(tt_put_token_rows(device->stream, &put));
    test_ok(tt_add_token_rows(device->stream, &add));
    TEST_TO_HOST(device, &p->rows, &p->tokens, &p->ids, &p->y, &y, &drows);
    test_tensor_check_gaps("y", &y);
    double *got = test_tensor_values(&y);
    for (int64_t t = 0; t < row->tokens; t++)
        for (int64_t d = 0; d < row->width; d++) {
            int64_t k = p->of[(int64_t)ids[t]], at = t * row->width + d;
            double want =
                k < 0 ? before[at] : (double)test_round((float)rows[k * row->width + d], row->output);
            assert_true(got[at] == want);
        }
    test_check_result("drows", drows, threads, p->exact_drows, p->simple_drows, 3, &p->first_drows);
    free(got), free(before), free(ids), free(rows);
    test_tensor_free(&y);
}

/* Columns are put, and taken out again: what remains of them is 0. */
static void check_token_columns(struct test_device *device, int threads, void *context)
{
    struct token_problem *p = context;
    const struct token_case *row = p->row;
    struct test_tensor logits = test_tensor_copy(&p->logits), taken = test_tensor_copy(&p->columns);
    double *before = test_tensor_values(&logits), *columns = test_tensor_values(&p->columns);
    (void)threads;
    TEST_TO_DEVICE(device, &p->columns, &p->tokens, &logits);
    struct tt_put_token_columns_args put = {
        .x_NK = p->columns.view, .tokens_K = p->tokens.view, .y_NV = logits.view};
    test_ok(tt_put_token_columns(device->stream, &put));
    TEST_TO_HOST(device, &p->columns, &p->tokens, &logits);
    double *after = test_tensor_values(&logits);
    for (int64_t n = 0; n < row->tokens; n++)
        for (int64_t v = 0; v < row->vocab; v++) {
            int64_t at = n * row->vocab + v;
            assert_true(after[at] == (p->of[v] < 0 ? before[at] : columns[n * row->trained + p->of[v]]));
        }
    test_tensor_poison(&taken);
    TEST_TO_DEVICE(device, &taken, &p->tokens, &logits);
    struct tt_take_token_columns_args take = {
        .y_NV = logits.view, .tokens_K = p->tokens.view, .x_NK = taken.view};
    test_ok(tt_take_token_columns(device->stream, &take));
    TEST_TO_HOST(device, &taken, &p->tokens, &logits);
    test_tensor_check_gaps("logits", &logits);
    test_tensor_check_gaps("columns", &taken);
    test_tensor_equal("columns", &taken, &p->columns);
    double *left = test_tensor_values(&logits);
    for (int64_t n = 0; n < row->tokens; n++)
        for (int64_t v = 0; v < row->vocab; v++)
            assert_true(left[n * row->vocab + v] == (p->of[v] < 0 ? before[n * row->vocab + v] : 0));
    free(before), free(after), free(left), free(columns);
    test_tensor_free(&logits);
    test_tensor_free(&taken);
}

static void sum_token_rows(struct token_problem *p)
{
    const struct token_case *row = p->row;
    double *dy = test_tensor_values(&p->y), *ids = test_tensor_values(&p->ids);
    p->exact_drows = test_tensor_values(&p->drows);
    p->simple_drows = test_tensor_values(&p->drows);
    for (int64_t t = 0; t < row->tokens; t++)
        for (int64_t d = 0; d < row->width; d++) {
            int64_t k = p->of[(int64_t)ids[t]], to = k * row->width + d;
            if (k < 0) continue;
            p->exact_drows[to] += dy[t * row->width + d];
            p->simple_drows[to] = (double)((float)p->simple_drows[to] + (float)dy[t * row->width + d]);
        }
    free(dy), free(ids);
}

/* The tokens are every third id from the last one down, and around again: in no order, none twice. */
static void check_tokens(const void *row_pointer)
{
    const struct token_case *row = row_pointer;
    struct token_problem p = {.row = row};
    p.rows = test_tensor_random(row->rows, row->trained, row->width, TEST_UNUSED, row->gap, 1, 1);
    p.ids = test_tensor_make(TT_I32, row->tokens, TEST_UNUSED, TEST_UNUSED, 0);
    test_tensor_random_index(&p.ids, 2, row->vocab);
    p.tokens = test_tensor_make(TT_I32, row->trained, TEST_UNUSED, TEST_UNUSED, 0);
    p.y = test_tensor_random(row->output, row->tokens, row->width, TEST_UNUSED, row->gap, 3, 1);
    p.drows = test_tensor_random(TT_F32, row->trained, row->width, TEST_UNUSED, row->gap, 4, 1);
    p.logits = test_tensor_random(row->output, row->tokens, row->vocab, TEST_UNUSED, row->gap, 5, 1);
    p.columns = test_tensor_random(row->output, row->tokens, row->trained, TEST_UNUSED, row->gap, 6, 1);
    p.of = calloc((size_t)row->vocab, sizeof *p.of);
    assert_non_null(p.of);
    for (int64_t v = 0; v < row->vocab; v++) p.of[v] = -1;
    for (int64_t k = 0, v = row->vocab - 1, first = row->vocab - 1; k < row->trained; k++) {
        p.of[v] = k;
        ((int32_t *)p.tokens.view.data)[k] = (int32_t)v;
        v -= 3;
        if (v < 0) v = --first;
    }
    sum_token_rows(&p);
    test_on_each_isa(check_token_rows, &p);
    test_on_each_isa(check_token_columns, &p);
    free(p.of), free(p.exact_drows), free(p.simple_drows);
    struct test_tensor *all[] = {&p.rows,  &p.ids,         &p.tokens, &p.y,
                                 &p.drows, &p.first_drows, &p.logits, &p.columns};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) test_tensor_free(all[i]);
}

static void rows_of_tokens_train_apart(void **state)
{
    (void)state;
    TEST_CASES("token rows", token_cases, check_tokens);
}

static void a_token_that_is_no_column_is_refused(void **state)
{
    (void)state;
    TEST_CPU_ONLY();
    struct test_device device;
    test_device_open(&device, "cpu", 1);
    struct test_tensor y = test_tensor_make(TT_F32, 2, 5, TEST_UNUSED, 0);
    struct test_tensor x = test_tensor_make(TT_F32, 2, 2, TEST_UNUSED, 0);
    struct test_tensor tokens = test_tensor_make(TT_I32, 2, TEST_UNUSED, TEST_UNUSED, 0);
    struct tt_put_token_columns_args put = {.x_NK = x.view, .tokens_K = tokens.view, .y_NV = y.view};
    struct tt_take_token_columns_args take = {.y_NV = y.view, .tokens_K = tokens.view, .x_NK = x.view};
    test_tensor_set(&tokens, (const double[]){4, 5});
    test_refused(tt_put_token_columns(device.stream, &put), TT_ERR_INTERNAL, "entry 1 is 5");
    test_refused(tt_take_token_columns(device.stream, &take), TT_ERR_INTERNAL, "entry 1 is 5");
    put.y_NV = tt_tensor_cols(y.view, 0, 1);
    test_refused(tt_put_token_columns(device.stream, &put), TT_ERR_INTERNAL, "2 columns are named");
    test_device_close(&device);
    test_tensor_free(&y);
    test_tensor_free(&x);
    test_tensor_free(&tokens);
}

int main(void)
{
    int missing = test_device_missing();
    if (missing != 0) return missing;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(close_to_the_oracle),
        cmocka_unit_test(sizes_of_real_models),
        cmocka_unit_test(an_id_outside_the_table_is_refused),
        cmocka_unit_test(rows_are_moved),
        cmocka_unit_test(rows_of_tokens_train_apart),
        cmocka_unit_test(a_token_that_is_no_column_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
