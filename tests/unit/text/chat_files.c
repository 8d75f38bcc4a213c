/* text/chat_files.h: which of several files counts for a token, a template and the end of an answer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/file.h"
#include "support/root.h"
#include "text/chat_files.h"

/* "name=text" of all tokens, in their order. */
static void expect_tokens(const struct tt_chat_files *files, const char *expected)
{
    struct tt_str text = {0};
    assert_int_equal(tt_str_append_text(&text, ""), TT_OK);
    for (size_t i = 0; i < files->token_count; i++)
        assert_int_equal(tt_str_printf(&text, " %s=%s", files->tokens[i].name, files->tokens[i].text), TT_OK);
    assert_string_equal(tt_str_text(&text), expected);
    tt_str_deinit(&text);
}

/* With added_tokens_decoder the map does not count; without it its keys come first. */
static void tokens(void **state)
{
    (void)state;
    struct tt_chat_files files = {0};
    test_put("special_tokens_map.json", "{\"eos_token\": \"M\", \"unk_token\": \"D\", \"other\": \"no\"}");
    test_put("generation_config.json", "{\"eos_token_id\": [3, \"no\", 4]}");
    for (int decoder = 0; decoder < 2; decoder++) {
        struct tt_str config = {0};
        assert_int_equal(tt_str_printf(&config,
                                       "{%s\"eos_token\": \"A\", \"bos_token\": {\"content\": \"B\"}, "
                                       "\"pad_token\": null, \"_token\": \"no\", "
                                       "\"extra_special_tokens\": {\"image\": \"C\", \"eos_token\": \"no\"}}",
                                       decoder ? "\"added_tokens_decoder\": {}, " : ""),
                         TT_OK);
        test_put("tokenizer_config.json", tt_str_text(&config));
        tt_str_deinit(&config);
        tt_chat_files_deinit(&files);
        assert_int_equal(tt_chat_files_load(test_root(), &files), TT_OK);
        expect_tokens(&files, decoder ? " eos_token=A bos_token=B image=C"
                                      : " eos_token=M unk_token=D bos_token=B image=C");
    }
    assert_int_equal(files.ends.count, 2);
    assert_int_equal(files.ends.data[0], 3);
    assert_int_equal(files.ends.data[1], 4);
    tt_chat_files_deinit(&files);
    assert_int_equal(tt_chat_files_load(NULL, &files), TT_OK);
    assert_int_equal(files.token_count + files.template_count, 0);
}

static void expect_template(bool tools, const char *expected)
{
    struct tt_chat_files files = {0};
    const struct tt_chat_template *found = NULL;
    assert_int_equal(tt_chat_files_load(test_root(), &files), TT_OK);
    assert_int_equal(tt_chat_files_choose(&files, tools, &found), TT_OK);
    assert_string_equal(found->text, expected);
    tt_chat_files_deinit(&files);
}

static void templates(void **state)
{
    (void)state;
    struct tt_chat_files files = {0};
    const struct tt_chat_template *found = NULL;
    test_put("tokenizer_config.json",
             "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"T\"}, {\"name\": "
             "\"default\", \"template\": \"D\"}]}");
    expect_template(false, "D");
    expect_template(true, "T");
    test_put("chat_template.jinja", "J"); /* a file of its own hides those within the other one */
    expect_template(false, "J");
    expect_template(true, "J");
    assert_int_equal(tt_dir_create(test_at("additional_chat_templates")), TT_OK);
    test_put("additional_chat_templates/tool_use.jinja", "U");
    test_put("additional_chat_templates/notes.txt", "no");
    expect_template(false, "J");
    expect_template(true, "U");
    assert_int_equal(tt_chat_files_choose(&files, false, &found), TT_ERR_DATA);
    assert_string_equal(tt_error_last()->message,
                        "conversations need a chat template, and the tokenizer has none");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(tokens, test_root_create, test_root_remove),
        cmocka_unit_test_setup_teardown(templates, test_root_create, test_root_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
