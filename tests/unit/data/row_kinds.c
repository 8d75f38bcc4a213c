/* data/row_kinds.def: each line is whole, and a row of several kinds is of the first that accepts it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/json.h"
#include "data/row_reader_impl.h"

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
        assert_true((kind->plural != NULL) == (kind->next != NULL));
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_kind_is_whole),
                                       cmocka_unit_test(the_first_kind_that_accepts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
