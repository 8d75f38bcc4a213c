/* GPT-2's and Llama's own tokenizers against their known ids: texts separated by __ggml_vocab_test__ lines,
 * ids without BOS one line per text. The files are large and lie outside of the repository: in
 * $TT_SHARED_DATA or
 * ../shared/data beside it; the test is skipped where they are not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "text/tokenizer.h"

static const char *data_folder(void)
{
    const char *folder = getenv("TT_SHARED_DATA");
    return folder != NULL ? folder : TT_TEST_ROOT "/../../shared/data";
}

static void check_line(const struct tt_ids *ids, const char *line, size_t number)
{
    for (size_t i = 0; i < ids->count; i++) {
        char *end;
        long expected = strtol(line, &end, 10);
        if (end == line || expected != ids->data[i])
            fail_msg("text %zu: id %zu is %d", number, i, ids->data[i]);
        line = end;
    }
    line += strspn(line, " ");
    if (*line != '\n' && *line != 0) fail_msg("text %zu: ids are missing: '%.40s'", number, line);
}

static void check(const char *name)
{
    static const char separator[] = "\n__ggml_vocab_test__\n";
    char folder[1024], path[1100];
    struct tt_str texts = {0}, lines = {0};
    struct tt_tokenizer *tokenizer = NULL;
    struct tt_tokenizer_scratch *scratch = NULL;
    snprintf(folder, sizeof folder, "%s/%s", data_folder(), name);
    assert_int_equal(tt_tokenizer_load(folder, &tokenizer), TT_OK);
    assert_int_equal(tt_tokenizer_scratch_create(tokenizer, &scratch), TT_OK);
    snprintf(path, sizeof path, "%s/goldens.inp", folder);
    assert_int_equal(tt_file_read(path, 1 << 20, &texts), TT_OK);
    snprintf(path, sizeof path, "%s/goldens.out", folder);
    assert_int_equal(tt_file_read(path, 1 << 20, &lines), TT_OK);
    size_t number = 0;
    const char *text = texts.data, *line = lines.data;
    for (const char *end; (end = strstr(text, separator)) != NULL; text = end + strlen(separator)) {
        struct tt_ids ids = {0};
        size_t bytes = (size_t)(end - text);
        assert_int_equal(tt_tokenizer_encode(tokenizer, scratch, text, bytes, false, &ids), TT_OK);
        check_line(&ids, line, number);
        tt_ids_deinit(&ids);
        line = strchr(line, '\n');
        assert_non_null(line);
        line++;
        number++;
    }
    assert_true(number > 30);
    tt_str_deinit(&texts);
    tt_str_deinit(&lines);
    tt_tokenizer_scratch_destroy(scratch);
    tt_tokenizer_destroy(tokenizer);
}

static void gpt2(void **state)
{
    (void)state;
    check("gpt2-tokenizer");
}

static void llama(void **state)
{
    (void)state;
    check("llama-spm-tokenizer");
}

int main(void)
{
    char *path = tt_path_join(data_folder(), "gpt2-tokenizer/goldens.inp");
    bool present = path != NULL && tt_path_exists(path);
    tt_free(path);
    if (!present) {
        printf("skipped: no tokenizers in '%s'; TT_SHARED_DATA names another folder\n", data_folder());
        return 77;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(gpt2), cmocka_unit_test(llama)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
