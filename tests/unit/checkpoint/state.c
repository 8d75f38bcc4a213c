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
#include "checkpoint/consolidate.h"
#include "checkpoint/layout.h"
#include "checkpoint/manifest.h"
#include "checkpoint/state.h"
#include "io/model_folder.h"
#include "support/temporary.h"

#define MODEL TT_TEST_ROOT "/golden/llama2/model"

struct scene {
    char folder[160];
    struct tt_model *model;
    struct tt_weights_layout layout; /* a whole state, in one file */
};

static void begin(struct scene *scene)
{
    struct tt_model_folder *folder = NULL;
    struct tt_model_facts config;
    struct tt_model_options options = {.compute_dtype = TT_F32,
                                       .lora = {.enabled = true, .r = 2, .alpha = 4}};
    test_temporary_of(scene->folder, sizeof scene->folder, "trimtab-state", (long)getpid(), "");
    assert_int_equal(tt_model_folder_open(MODEL, true, &folder), TT_OK);
    assert_int_equal(tt_model_facts_parse(tt_model_folder_config(folder), &config), TT_OK);
    tt_model_folder_close(folder);
    assert_int_equal(tt_model_create(&config, &options, &scene->model), TT_OK);
    assert_int_equal(
        tt_state_layout_init(scene->model, tt_optimizer_of(NULL), false, NULL, UINT64_MAX, &scene->layout),
        TT_OK);
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
    char path[400];
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
    tt_status status = tt_state_check(state, scene->model, tt_optimizer_of(NULL), false);
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

static void tensors_that_do_not_belong(void **state)
{
    (void)state;
    struct scene scene = {0};
    struct tt_safetensors_entry entries[64];
    begin(&scene);
    const struct tt_weights_file *file = &scene.layout.files[0];
    static const char name[] = "training_state.safetensors";
    clear(&scene);
    memcpy(entries, file->entries, file->count * sizeof *entries);
    entries[0].dtype = TT_F64;
    write_file(&scene, name, entries, file->count);
    expect(&scene, "training_state.safetensors' is neither F32 nor U8, or is outside of its shape");
    entries[0].dtype = TT_U8;
    write_file(&scene, name, entries, file->count);
    expect(&scene, "' is U8, not F32");
    entries[0] = file->entries[0];
    entries[0].dims[0]++;
    write_file(&scene, name, entries, file->count);
    expect(&scene, "' has another shape than in the model");
    write_file(&scene, name, file->entries + 1, file->count - 1);
    expect(&scene, "the training state in '");
    memcpy(entries, file->entries, file->count * sizeof *entries);
    entries[file->count] =
        (struct tt_safetensors_entry){.name = "exp_avg.other", .dtype = TT_F32, .rank = 1, .dims = {1}};
    write_file(&scene, name, entries, file->count + 1);
    expect(&scene, "has 'exp_avg.other', which the model does not train");
    entries[file->count].name = "exp_avg.other@x";
    write_file(&scene, name, entries, file->count + 1);
    expect(&scene, "has a tensor 'exp_avg.other@x', which is not part of a training state");
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
        assert_int_equal(
            tt_state_layout_init(scene.model, tt_optimizer_of(NULL), false, NULL, most[m], &layout), TT_OK);
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

/* Element i of an entry is its number in the whole state times 1000 plus i. */
static float value_of(size_t entry, int64_t i)
{
    return (float)(entry * 1000 + (size_t)i);
}

/* What one of two ranks holds: the first or the second part of every tensor. */
static void write_rank(const struct scene *scene, int rank)
{
    const struct tt_weights_file *whole = &scene->layout.files[0];
    struct tt_safetensors_entry pieces[64], sorted[64];
    char names[64][160], path[400];
    struct tt_str header = {0};
    uint64_t bytes;
    assert_true(whole->count <= 64);
    for (size_t i = 0; i < whole->count; i++) {
        const struct tt_safetensors_entry *entry = &whole->entries[i];
        int64_t all = (int64_t)(entry->bytes / sizeof(float)), cut = all / 3;
        char shape[32];
        (void)snprintf(shape, sizeof shape, entry->rank == 1 ? "%lld" : "%lld,%lld",
                       (long long)entry->dims[0], (long long)entry->dims[1]);
        (void)snprintf(names[i], sizeof names[i], "%s[%s]@%lld", entry->name, shape,
                       rank == 0 ? 0LL : (long long)cut);
        pieces[i] = (struct tt_safetensors_entry){
            .name = names[i], .dtype = TT_F32, .rank = 1, .dims = {rank == 0 ? cut : all - cut}};
    }
    memcpy(sorted, pieces, sizeof pieces);
    assert_int_equal(tt_safetensors_layout(sorted, whole->count, &header, &bytes), TT_OK);
    char *data = tt_calloc((size_t)bytes, 1);
    assert_non_null(data);
    memcpy(data, header.data, header.bytes);
    for (size_t j = 0; j < whole->count; j++) {
        size_t i = 0;
        while (pieces[i].name != sorted[j].name) i++;
        int64_t first = rank == 0 ? 0 : (int64_t)(whole->entries[i].bytes / sizeof(float)) / 3;
        for (int64_t e = 0; e < sorted[j].dims[0]; e++) {
            float value = value_of(i, first + e);
            memcpy(data + sorted[j].offset + (size_t)e * sizeof value, &value, sizeof value);
        }
    }
    (void)snprintf(path, sizeof path, "%s/training_state-%05d-of-00002.safetensors", scene->folder, rank + 1);
    assert_int_equal(tt_file_write_atomic(path, data, (size_t)bytes), TT_OK);
    tt_free(data);
    tt_str_deinit(&header);
}

static void check_output(const struct scene *scene, const char *folder, const struct tt_weights_file *file)
{
    struct tt_str text = {0};
    char path[400];
    (void)snprintf(path, sizeof path, "%s/%s", folder, file->name);
    assert_int_equal(tt_file_read(path, 1 << 26, &text), TT_OK);
    assert_true(text.bytes == file->bytes);
    assert_memory_equal(text.data, file->header.data, file->header.bytes);
    for (size_t j = 0; j < file->count; j++) {
        size_t i = 0;
        while (strcmp(scene->layout.files[0].entries[i].name, file->entries[j].name) != 0) i++;
        for (size_t e = 0; e < file->entries[j].bytes / sizeof(float); e++) {
            float value;
            memcpy(&value, text.data + file->entries[j].offset + e * sizeof value, sizeof value);
            if (value != value_of(i, (int64_t)e))
                fail_msg("%s: element %zu of %s is %g", file->name, e, file->entries[j].name, (double)value);
        }
    }
    tt_str_deinit(&text);
}

/* The files of two ranks as the very files that a save of whole tensors makes, however many. */
static void pieces_become_the_files_of_a_whole_save(void **state)
{
    (void)state;
    struct scene scene = {0};
    struct tt_manifest manifest = {.step = 2};
    char path[400], output[256];
    begin(&scene);
    clear(&scene);
    write_rank(&scene, 0);
    write_rank(&scene, 1);
    (void)snprintf(path, sizeof path, "%s/training_state.json", scene.folder);
    assert_int_equal(tt_file_write_atomic(path, "{}", 2), TT_OK);
    assert_int_equal(tt_manifest_add_rest(&manifest, scene.folder), TT_OK);
    assert_int_equal(tt_manifest_write(&manifest, scene.folder), TT_OK);
    tt_manifest_deinit(&manifest);
    (void)snprintf(output, sizeof output, "%s-whole", scene.folder);
    const uint64_t most[] = {0, scene.layout.tensor_bytes / 3, 1};
    for (size_t m = 0; m < sizeof most / sizeof *most; m++) {
        struct tt_weights_layout layout;
        struct tt_checkpoint_facts facts;
        size_t tensors;
        assert_int_equal(
            tt_state_layout_init(scene.model, tt_optimizer_of(NULL), false, NULL, most[m], &layout), TT_OK);
        assert_true(m == 0 ? layout.file_count == 1 : layout.file_count > 2);
        assert_int_equal(tt_checkpoint_consolidate(scene.folder, output, true, most[m], NULL, &tensors),
                         TT_OK);
        assert_int_equal(tensors, scene.layout.files[0].count);
        for (size_t f = 0; f < layout.file_count; f++) check_output(&scene, output, &layout.files[f]);
        assert_int_equal(tt_checkpoint_facts(output, &facts), TT_OK);
        assert_int_equal(facts.state_parts, layout.file_count);
        assert_int_equal(tt_checkpoint_consolidate(output, scene.folder, true, 0, NULL, &tensors),
                         TT_ERR_USAGE);
        tt_weights_layout_deinit(&layout);
    }
    assert_int_equal(tt_dir_remove(output), TT_OK);
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
        {{at[0], at[1], NULL}, {4, all - 5}, "gaps or overlaps"},
        {{at[0], at[1], NULL}, {6, all - 5}, "gaps or overlaps"},
        {{at[0], at[4], NULL}, {all, 3}, "gaps or overlaps"},
        {{at[0], at[3], NULL}, {10, all - 11}, "gaps or overlaps"},
        {{at[1], NULL}, {all}, "outside of its shape"},
        {{other, NULL}, {all}, "another shape"},
        {{"[9]@x", NULL}, {9}, "not part of a training state"},
        {{"@0", NULL}, {9}, "not part of a training state"},
        {{"[]@0", NULL}, {9}, "not part of a training state"},
        {{"[1,]@0", NULL}, {9}, "not part of a training state"},
        {{"@0[9]", NULL}, {9}, "not part of a training state"},
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
    expect(&scene, "gaps or overlaps");
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
        cmocka_unit_test(tensors_that_do_not_belong),
        cmocka_unit_test(large_ones_are_several_files),
        cmocka_unit_test(pieces_become_the_files_of_a_whole_save),
        cmocka_unit_test(pieces_must_fit),
        cmocka_unit_test(nothing_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
