/* run/output_dir.h: what a killed run left unfinished is cleared away, and nothing else is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/file.h"
#include "base/str.h"
#include "run/output_dir.h"

struct place {
    char folder[256], output[320];
};

/* The folder's own name looks like that of a checkpoint that was set aside. */
static void place_create(struct place *place)
{
    const char *temporary = getenv("TMPDIR");
    snprintf(place->folder, sizeof place->folder, "%s/tt-test-XXXXXX",
             temporary != NULL ? temporary : "/tmp");
    assert_non_null(mkdtemp(place->folder));
    snprintf(place->output, sizeof place->output, "%s/checkpoint-1.old-2/out", place->folder);
    assert_int_equal(tt_dir_create(place->output), TT_OK);
}

static void make_folder(const struct place *place, const char *name)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s", place->output, name);
    assert_int_equal(tt_dir_create(path), TT_OK);
    snprintf(path, sizeof path, "%s/%s/of %s", place->output, name, name);
    assert_int_equal(tt_file_write_atomic(path, "", 0), TT_OK);
}

/* Whether the folder `name` is there and holds what was made as `made`. */
static bool holds(const struct place *place, const char *name, const char *made)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s/of %s", place->output, name, made);
    return tt_path_exists(path);
}

static void clear(const struct place *place)
{
    struct tt_output_dir output = {0};
    const struct tt_run_spec run = {.output_dir = place->output};
    const struct tt_model_spec model = {.init = TT_INIT_RANDOM};
    assert_int_equal(tt_output_dir_claim(&run, &model, false, &output), TT_OK);
    assert_int_equal(tt_output_dir_check(&output, &run, true), TT_OK);
    tt_output_dir_release(&output, false);
}

static void test_unfinished_saves_go(void **state)
{
    struct place place;
    (void)state;
    place_create(&place);
    make_folder(&place, "checkpoint-4");
    make_folder(&place, "checkpoint-8.saving");
    make_folder(&place, "checkpoint-8.mine");
    clear(&place);
    assert_true(holds(&place, "checkpoint-4", "checkpoint-4"));
    assert_false(holds(&place, "checkpoint-8.saving", "checkpoint-8.saving"));
    assert_true(holds(&place, "checkpoint-8.mine", "checkpoint-8.mine"));
    assert_int_equal(tt_dir_remove(place.folder), TT_OK);
}

static void test_folder_set_aside_comes_back(void **state)
{
    struct place place;
    (void)state;
    place_create(&place);
    make_folder(&place, "checkpoint-4.old-77");
    make_folder(&place, "checkpoint-8.old-77");
    make_folder(&place, "checkpoint-8");
    clear(&place);
    assert_true(holds(&place, "checkpoint-4", "checkpoint-4.old-77"));
    assert_true(holds(&place, "checkpoint-8", "checkpoint-8"));
    assert_false(holds(&place, "checkpoint-8.old-77", "checkpoint-8.old-77"));
    assert_int_equal(tt_dir_remove(place.folder), TT_OK);
}

static void test_copies_of_the_user_stay(void **state)
{
    static const char *const names[] = {"checkpoint-4.old-good", "checkpoint-4.old-", "checkpoint-best.old-3",
                                        "checkpoint-4.old-3.old-x", "checkpoint-.old-3"};
    struct place place;
    (void)state;
    place_create(&place);
    make_folder(&place, "checkpoint-4");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) make_folder(&place, names[i]);
    clear(&place);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!holds(&place, names[i], names[i])) fail_msg("%s is gone", names[i]);
    assert_int_equal(tt_dir_remove(place.folder), TT_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unfinished_saves_go),
        cmocka_unit_test(test_folder_set_aside_comes_back),
        cmocka_unit_test(test_copies_of_the_user_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
