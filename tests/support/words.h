/* Settings and command lines of tests as lists of words, and the folder of a test. */
#ifndef TT_TESTS_SUPPORT_WORDS_H
#define TT_TESTS_SUPPORT_WORDS_H

#include <stddef.h>

/* Creates a folder below the system's temporary folder; test_folder_remove removes it. A failure fails the test. */
char *test_folder_create(void);
void test_folder_remove(char *folder); /* frees the name too */

/* Settings as words: "max_steps 20 bf16 false" becomes {"max_steps", "20", "bf16", "false", NULL}. A zeroed
 * struct is an empty list. It has pointers into itself and must not be copied. */
struct test_words {
    const char *list[160];
    int count;
    char text[8192];
    size_t bytes;
};
/* separated by blanks, except in 'one word' */
void test_words_add(struct test_words *words, const char *text);
/* a value may contain blanks */
void test_words_pair(struct test_words *words, const char *name, const char *value);
/* The words as a command line: `program` and `command`, then --name value ... */
void test_words_command(struct test_words *command_line, const char *program, const char *command,
                        const struct test_words *words);

/* Appends the words as text for a shell, each in single quotes; words must not contain any. */
void test_words_shell(const struct test_words *words, char *text, size_t text_bytes);
/* mpirun with two ranks that each run their own shell text. Not "command : command": the mpirun of Open MPI
 * 5.0.7 crashes when one of several programs fails. */
void test_words_two_ranks(struct test_words *command, const char *first, const char *second);

#endif
