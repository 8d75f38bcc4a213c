#include "support/words.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "support/program.h"
#include "support/temporary.h"

char *test_folder_create(void)
{
    char template[256];
    test_temporary(template, sizeof template, "trimtab-test-XXXXXX");
    if (mkdtemp(template) == NULL) fail_msg("cannot make a temporary folder");
    return tt_strdup(template);
}

void test_folder_remove(char *folder)
{
    assert_int_equal(tt_dir_remove(folder), TT_OK);
    tt_free(folder);
}

static void add_word(struct test_words *words, const char *before, const char *word, size_t word_bytes)
{
    int capacity = (int)(sizeof words->list / sizeof *words->list);
    size_t bytes = strlen(before) + word_bytes + 1;
    if (words->count + 1 >= capacity || words->bytes + bytes > sizeof words->text) fail_msg("too many words");
    char *to = words->text + words->bytes;
    snprintf(to, bytes, "%s%.*s", before, (int)word_bytes, word);
    words->list[words->count++] = to;
    words->bytes += bytes;
}

void test_words_add(struct test_words *words, const char *text)
{
    for (text += strspn(text, " "); *text != '\0'; text += strspn(text, " ")) {
        bool quoted = *text == '\'';
        if (quoted) text++;
        size_t bytes = strcspn(text, quoted ? "'" : " ");
        add_word(words, "", text, bytes);
        text += bytes + (quoted && text[bytes] == '\'');
    }
}

void test_words_pair(struct test_words *words, const char *name, const char *value)
{
    add_word(words, "", name, strlen(name));
    add_word(words, "", value, strlen(value));
}

void test_words_command(struct test_words *command_line, const char *program, const char *command,
                        const struct test_words *words)
{
    add_word(command_line, "", program, strlen(program));
    add_word(command_line, "", command, strlen(command));
    for (int i = 0; i < words->count; i++)
        add_word(command_line, i % 2 == 0 ? "--" : "", words->list[i], strlen(words->list[i]));
}

void test_words_shell(const struct test_words *words, char *text, size_t text_bytes)
{
    for (int i = 0; i < words->count; i++) {
        size_t bytes = strlen(text);
        int written = snprintf(text + bytes, text_bytes - bytes, " '%s'", words->list[i]);
        assert_true(written > 0 && (size_t)written < text_bytes - bytes);
    }
}

void test_words_two_ranks(struct test_words *command, const char *first, const char *second)
{
    char script[7000];
    int written = snprintf(script, sizeof script,
                           "if [ \"${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}\" = 0 ]; then %s; else %s; fi",
                           first, second);
    assert_true(written > 0 && (size_t)written < sizeof script);
    test_words_add(command, TEST_MPIRUN " -np 2 sh");
    test_words_pair(command, "-c", script);
}
