#include "support/golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/file.h"
#include "support/root.h"

#define GOLDEN TT_TEST_ROOT "/golden"

static void link_file(const char *folder, const char *name, const char *file)
{
    char from[1024], to[1024];
    snprintf(from, sizeof from, GOLDEN "/%s/%s/%s", folder, name, file);
    snprintf(to, sizeof to, "%s/%s", test_at(name), file);
    if (!tt_path_exists(to)) assert_int_equal(symlink(from, to), 0);
}

struct tt_tokenizer *test_golden_tokenizer(const char *name)
{
    struct tt_tokenizer *tokenizer = NULL;
    mkdir(test_at(name), 0777);
    link_file("tokenizer", name, "tokenizer.json");
    link_file("chat/tokenizers", name, "tokenizer_config.json");
    if (tt_tokenizer_load(test_at(name), &tokenizer) != TT_OK) fail_msg("%s", tt_error_last()->message);
    return tokenizer;
}

static void add_path(struct test_words *settings, const char *key, const char *family, const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, GOLDEN "/%s/%s", family, name);
    test_words_pair(settings, key, path);
}

void test_golden_inputs(struct test_words *settings, const char *family, bool lora)
{
    add_path(settings, "model_name_or_path", family, "model");
    add_path(settings, "dataset_name", family, "train.jsonl");
    if (lora)
        add_path(settings, "adapter_name_or_path", family, "adapter_init");
    else
        test_words_pair(settings, "use_peft", "false");
}

void test_golden_dense_inputs(struct test_words *settings, const char *name)
{
    char family[64];
    snprintf(family, sizeof family, "dense/%s", name);
    add_path(settings, "model_name_or_path", family, "model");
    add_path(settings, "dataset_name", "dense", "train.jsonl");
    add_path(settings, "adapter_name_or_path", family, "adapter_init");
}

void test_copy_lines(const char *from, int count, const char *to)
{
    struct tt_str text = {0};
    assert_int_equal(tt_file_read(from, 1 << 24, &text), TT_OK);
    const char *end = text.data;
    for (int i = 0; i < count; i++) {
        end = strchr(end, '\n');
        if (end == NULL) fail_msg("%s has fewer than %d lines", from, count);
        end++;
    }
    assert_int_equal(tt_file_write_atomic(to, text.data, (size_t)(end - text.data)), TT_OK);
    tt_str_deinit(&text);
}
