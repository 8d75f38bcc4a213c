/* A training state is checked before a byte of it is used: what is missing, of another shape, there twice,
 * not whole or of another model is named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "checkpoint/layout.h"
#include "checkpoint/state.h"
#include "io/model_folder.h"

#define MODEL TT_TEST_ROOT "/golden/llama2/model"

struct scene {
    char folder[64];
    struct tt_model *model;
    struct tt_weights_layout layout; /* a whole state, in one file */
};

static void begin(struct scene *scene)
{
    struct tt_model_folder *folder = NULL;
    struct tt_model_config config;
    struct tt_model_options options = {.compute_dtype = TT_F32,
                                       .lora = {.enabled = true, .r = 2, .alpha = 4}};
    (void)snprintf(scene->folder, sizeof scene->folder, "/tmp/trimtab-state-%ld", (long)getpid());
    assert_int_equal(tt_model_folder_open(MODEL, true, &folder), TT_OK);
    assert_int_equal(tt_model_config_parse(tt_model_folder_config(folder), &config), TT_OK);
    tt_model_folder_close(folder);
    assert_int_equal(tt_model_create(&config, &options, &scene->model), TT_OK);
    assert_int_equal(tt_state_layout_init(scene->model, false, NULL, UINT64_MAX, &scene->layout), TT_OK);
}

static void end(struct scene *scene)
{
    tt_weights_layout_deinit(&scene->layout);
    tt_model_destroy(scene->model);
    assert_int_equal(tt_dir_remove(scene->folder), TT_OK);
}

/* Zeros under the names and shapes of `entries`. */
static void write_file(const struct scene *scene, const char *name, const struct tt_safetensors_entry *from,
                       size_t count)
{
    struct tt_safetensors_entry entries[64];
    struct tt_str header = {0};
    char path[128];
    uint64_t bytes;
    assert_true(count <= 64);
    memcpy(entries, from, count * sizeof *entries);
    assert_int_equal(tt_safetensors_layout(entries, count, &header, &bytes), TT_OK);
    char *data = tt_calloc((size_t)bytes, 1);
    assert_non_null(data);
    memcpy(data, header.data, header.bytes);
    (void)snprintf(path, sizeof path, "%s/%s", scene->folder, name);
    assert_int_equal(tt_file_write_atomic(path, data, (size_t)bytes), TT_OK);
    tt_free(data);
    tt_str_deinit(&header);
}

static void clear(const struct scene *scene)
{
    assert_int_equal(tt_dir_remove(scene->folder), TT_OK);
    assert_int_equal(tt_dir_create(scene->folder), TT_OK);
}

static tt_status check(const struct scene *scene)
{
    struct tt_state *state = NULL;
    TT_TRY(tt_state_open(scene->folder, &state));
    tt_status status = tt_state_check(state, scene->model, false);
    tt_state_close(state);
    return status;
}

static void expect(const struct scene *scene, const char *words)
{
    assert_int_equal(check(scene), TT_ERR_DATA);
    if (strstr(tt_error_last()->message, words) == NULL)
        fail_msg("'%s': %s", words, tt_error_last()->message);
}

/* The whole state but entry `index`, and `pieces` of it, each under "<key>" and one of these endings. */
static void write_pieces(const struct scene *scene, size_t index, const char *const *endings,
                         const int64_t *counts)
{
    struct tt_safetensors_entry rest[64], piece;
    const struct tt_weights_file *file = &scene->layout.files[0];
    size_t count = 0;
    clear(scene);
    for (size_t i = 0; i < file->count; i++)
        if (i != index) rest[count++] = file->entries[i];
    write_file(scene, "training_state.safetensors", rest, count);
    for (int i = 0; endings[i] != NULL; i++) {
        char name[256], file_name[64];
        (void)snprintf(name, sizeof name, "%s%s", file->entries[index].name, endings[i]);
        (void)snprintf(file_name, sizeof file_name, "training_state-%05d-of-00004.safetensors", i + 1);
        piece = (struct tt_safetensors_entry){.name = name, .dtype = TT_F32, .rank = 1, .dims = {counts[i]}};
        write_file(scene, file_name, &piece, 1);
    }
}

static void whole_ones_pass(void **state)
{
    (void)state;
    struct scene scene = {0};
    begin(&scene);
    clear(&scene);
    expect(&scene, "no training state");
    write_file(&scene, "training_state.safetensors", scene.layout.files[0].entries,
               scene.layout.files[0].count);
    assert_int_equal(check(&scene), TT_OK);
    end(&scene);
}

/* A large state is several files: as even as whole tensors let them be, with the same tensors in the same
 * order. */
static void large_ones_are_several_files(void **state)
{
    (void)state;
    struct scene scene = {0};
    begin(&scene);
    const struct tt_weights_file *whole = &scene.layout.files[0];
    uint64_t tensors = scene.layout.tensor_bytes, largest = 0;
    for (size_t i = 0; i < whole->count; i++)
        if (whole->entries[i].bytes > largest) largest = whole->entries[i].bytes;
    const uint64_t most[] = {tensors, tensors - 1, tensors / 3, largest, 1};
    for (size_t m = 0; m < sizeof most / sizeof *most; m++) {
        struct tt_weights_layout layout;
        size_t entries = 0;
        clear(&scene);
        assert_int_equal(tt_state_layout_init(scene.model, false, NULL, most[m], &layout), TT_OK);
        assert_true(m == 0 ? layout.file_count == 1 : layout.file_count > 1);
        if (most[m] == 1) assert_int_equal(layout.file_count, whole->count);
        for (size_t f = 0; f < layout.file_count; f++) {
            struct tt_weights_file *file = &layout.files[f];
            assert_true(file->count == 1 || file->bytes - file->header.bytes <= most[m]);
            write_file(&scene, file->name, file->entries, file->count);
            entries += file->count;
        }
        assert_int_equal(entries, whole->count);
        assert_true(layout.tensor_bytes == tensors);
        assert_int_equal(check(&scene), TT_OK);
        tt_weights_layout_deinit(&layout);
    }
    end(&scene);
}

static void pieces_must_fit(void **state)
{
    (void)state;
    struct scene scene = {0};
    begin(&scene);
    const struct tt_safetensors_entry *entry = &scene.layout.files[0].entries[0];
    int64_t rows = entry->dims[0], columns = entry->dims[1], all = rows * columns;
    char at[6][64], other[64];
    static const int64_t firsts[] = {0, 5, 9, 10, 1};
    for (int i = 0; i < 5; i++)
        (void)snprintf(at[i], sizeof at[i], "[%lld,%lld]@%lld", (long long)rows, (long long)columns,
                       (long long)firsts[i]);
    (void)snprintf(other, sizeof other, "[%lld,%lld]@0", (long long)columns + 1, (long long)rows);
    const struct {
        const char *endings[4];
        int64_t counts[3];
        const char *words; /* NULL: fine */
    } cases[] = {
        {{at[0], at[1], NULL}, {5, all - 5}, NULL},
        {{at[1], at[0], NULL}, {all - 5, 5}, NULL},
        {{at[0], NULL}, {all}, NULL},
        {{NULL}, {0}, "has no"},
        {{at[0], at[1], NULL}, {4, all - 5}, "not whole"},
        {{at[0], at[1], NULL}, {6, all - 5}, "too much"},
        {{at[0], at[4], NULL}, {all, 3}, "too much"},
        {{at[0], at[3], NULL}, {10, all - 11}, "not whole"},
        {{at[1], NULL}, {all}, "outside of its shape"},
        {{other, NULL}, {all}, "another shape"},
        {{"[9]@x", NULL}, {9}, "no part of a training state"},
        {{"@0", NULL}, {9}, "no part of a training state"},
        {{"[]@0", NULL}, {9}, "no part of a training state"},
        {{"[1,]@0", NULL}, {9}, "no part of a training state"},
        {{"@0[9]", NULL}, {9}, "no part of a training state"},
        {{"[9]@-1", NULL}, {9}, "outside of its shape"},
        {{"[9223372036854775807,9223372036854775807]@0", NULL}, {9}, "outside of its shape"},
        {{"[99999999999999999999]@99999999999999999999", NULL}, {9}, "outside of its shape"},
        {{"[1,1,1,1,1,1,1,1,1,1,1]@0", NULL}, {1}, "another shape"},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        write_pieces(&scene, 0, cases[c].endings, cases[c].counts);
        if (cases[c].words != NULL)
            expect(&scene, cases[c].words);
        else if (check(&scene) != TT_OK)
            fail_msg("case %zu: %s", c, tt_error_last()->message);
    }
    end(&scene);
}

/* Entry 0 is there twice as a whole; a value of a parameter that does not train; one of no parameter at all.
 */
static void nothing_else(void **state)
{
    (void)state;
    struct scene scene = {0};
    begin(&scene);
    const struct tt_weights_file *file = &scene.layout.files[0];
    clear(&scene);
    write_file(&scene, "training_state.safetensors", file->entries, file->count);
    write_file(&scene, "training_state-00001-of-00001.safetensors", file->entries, 1);
    expect(&scene, "too much");
    static const char *const names[] = {"optimizer.exp_avg.model.norm.weight", "optimizer.exp_avg.", "what"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct tt_safetensors_entry entry = {.name = names[i], .dtype = TT_F32, .rank = 1, .dims = {4}};
        write_file(&scene, "training_state-00001-of-00001.safetensors", &entry, 1);
        expect(&scene, names[i]);
    }
    end(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_ones_pass),
        cmocka_unit_test(large_ones_are_several_files),
        cmocka_unit_test(pieces_must_fit),
        cmocka_unit_test(nothing_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
