/* data/row_kinds.def: each line is whole, and a row of several kinds is of the first that accepts it. A kind that an
 * objective names is a struct alone: the loader knows nothing else of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/json.h"
#include "data/dataset.h"
#include "data/row_reader_impl.h"
#include "support/root.h"

static const struct tt_row_kind *const kinds[] = {
#define ROW_KIND(name) &tt_row_##name,
#include "data/row_kinds.def"
#undef ROW_KIND
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static void every_kind_is_whole(void **state)
{
    (void)state;
    for (size_t k = 0; k < KINDS; k++) {
        const struct tt_row_kind *kind = kinds[k];
        assert_non_null(kind->read);
        assert_true((kind->samples_each > 1) == (kind->next != NULL));
        assert_true(kind->value == NULL || kind->plural != NULL);
        assert_true((kind->plural != NULL) == (kind->accepts == NULL));
        assert_true((kind->plural != NULL) == (kind->samples_each > 0));
        for (size_t j = 0; j < k; j++) assert_string_not_equal(kind->name, kinds[j]->name);
    }
}

static const char *kind_of(const char *text)
{
    static const struct tt_data_config config = {.dataset_text_field = "text",
                                                 .dataset_prompt_field = "prompt",
                                                 .dataset_completion_field = "completion"};
    const struct tt_row_reader reader = {.config = &config};
    const char *name = "none";
    struct tt_json json = {0};
    assert_int_equal(tt_json_parse(text, strlen(text), "test", &json), TT_OK);
    for (size_t k = KINDS; k-- > 0;)
        if (kinds[k]->accepts != NULL && kinds[k]->accepts(&reader, json.root)) name = kinds[k]->name;
    tt_json_deinit(&json);
    return name;
}

static void the_first_kind_that_accepts(void **state)
{
    (void)state;
    assert_string_equal(kind_of("{\"text\": \"a\"}"), "text");
    assert_string_equal(kind_of("{\"text\": \"a\", \"input_ids\": [1], \"messages\": []}"), "ids");
    assert_string_equal(kind_of("{\"text\": \"a\", \"prompt\": \"b\", \"completion\": \"c\"}"), "completion");
    assert_string_equal(kind_of("{\"prompt\": [], \"completion\": [], \"text\": \"a\"}"), "messages");
    assert_string_equal(kind_of("{\"instruction\": \"a\", \"output\": \"b\"}"), "alpaca");
    assert_string_equal(kind_of("{\"instruction\": \"a\", \"output\": \"b\", \"text\": \"c\"}"), "text");
    assert_string_equal(kind_of("{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}"), "none");
}

/* ---- A kind of the test: {"rung": N} is three samples, N and 1, N and 2, N and 3, of which the last id trains ---- */

enum { RUNGS = 3 };
static _Thread_local int64_t rung;

static tt_status next_rung(struct tt_row_reader *reader, struct tt_row *out)
{
    tt_row_clear_ids(&reader->ids, 0);
    TT_TRY(tt_ids_append(&reader->ids, (int32_t)rung));
    TT_TRY(tt_ids_append(&reader->ids, (int32_t)reader->part + 1));
    TT_TRY(tt_row_check_ids(reader, false));
    *out = (struct tt_row){.parts = RUNGS};
    return tt_row_set_supervised(reader, 1);
}

static tt_status read_rung(struct tt_row_reader *reader, const struct tt_json_value *row, struct tt_row *out)
{
    const struct tt_json_value *value = tt_json_get(row, "rung");
    if (!tt_json_is_integer(value)) return tt_row_fail(reader, TT_ERR_DATA, "the row has no 'rung'");
    rung = tt_json_integer(value);
    return next_rung(reader, out);
}

static const struct tt_row_kind ladder = {
    .name = "ladder", .plural = "ladders", .samples_each = RUNGS, .read = read_rung, .next = next_rung};

static void an_objectives_kind_is_a_struct(void **state)
{
    (void)state;
    const struct tt_data_config config = {.dataset_text_field = "text",
                                          .dataset_prompt_field = "rung",
                                          .dataset_completion_field = "completion",
                                          .max_length = 16,
                                          .packing_strategy = TT_PACKING_BFD,
                                          .eval_packing = -1,
                                          .completion_only_loss = -1,
                                          .rows_kind = &ladder};
    struct tt_dataset *dataset = NULL;
    test_put("ladders.jsonl", "{\"rung\": 7}\n{\"text\": \"a\", \"rung\": 9}\n");
    assert_int_equal(tt_dataset_load(test_at("ladders.jsonl"), &config, NULL, 10, 0, &dataset), TT_OK);
    assert_int_equal(tt_dataset_count(dataset), 2 * RUNGS);
    for (size_t i = 0; i < 2 * RUNGS; i++) {
        struct tt_sample sample = tt_dataset_sample(dataset, i);
        assert_int_equal(sample.count, 2);
        assert_int_equal(sample.ids[0], i < RUNGS ? 7 : 9);
        assert_int_equal(sample.ids[1], i % RUNGS + 1);
    }
    tt_dataset_destroy(dataset);
    test_put("others.jsonl", "{\"text\": \"a\"}\n");
    assert_int_equal(tt_dataset_load(test_at("others.jsonl"), &config, NULL, 10, 0, &dataset), TT_ERR_DATA);
    assert_non_null(strstr(tt_error_last()->message, "has no 'rung'"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_kind_is_whole),
                                       cmocka_unit_test(the_first_kind_that_accepts),
                                       cmocka_unit_test(an_objectives_kind_is_a_struct)};
    return cmocka_run_group_tests(tests, test_root_create, test_root_remove);
}
