/* The background half of a save: shares of several ranks, so large that each is written by several threads,
 * add up to whole files with the sums that the manifest holds; a save that is given up or cannot write says
 * so and leaves no note. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/crc64.h"
#include "base/file.h"
#include "checkpoint/writer.h"
#include "support/temporary.h"

enum {
    RANKS = 2,
    ENTRIES = 3,
    PATH_BYTES = 512,
    LARGE_COUNT = 9 * 1000 * 1000 + 7, /* bf16, made from floats */
    ODD_COUNT = 3 * 1000 * 1000 + 1,
    SMALL_COUNT = 5,
};

struct fixture {
    char folder[160];
    struct tt_safetensors_entry entries[ENTRIES];
    struct tt_weights_file files[2]; /* of two entries and of one */
    float *values[ENTRIES];
    struct tt_writer writers[RANKS];
    atomic_bool cancelled, all_written;
    struct tt_cancel stop;
};

static int64_t count_of(const struct tt_safetensors_entry *entry)
{
    return entry->dims[0];
}

static void lay_out(struct tt_weights_file *file, const char *name, struct tt_safetensors_entry *entries,
                    size_t count)
{
    snprintf(file->name, sizeof file->name, "%s", name);
    assert_int_equal(tt_safetensors_layout(entries, count, &file->header, &file->bytes), TT_OK);
    file->entries = entries;
    file->count = count;
}

/* Every rank has an uneven piece of every entry. */
static void share(struct fixture *f)
{
    for (int rank = 0; rank < RANKS; rank++) {
        struct tt_writer *writer = &f->writers[rank];
        *writer = (struct tt_writer){.file_count = 2,
                                     .rank = rank,
                                     .folder = f->folder,
                                     .cancelled = &f->cancelled,
                                     .all_written = &f->all_written,
                                     .stop = &f->stop};
        writer->files = tt_calloc(2, sizeof *writer->files);
        assert_non_null(writer->files);
        for (int n = 0; n < 2; n++) {
            struct tt_writer_file *file = &writer->files[n];
            file->file = &f->files[n];
            file->writes_header = rank == 0;
            for (size_t e = 0; e < f->files[n].count; e++) {
                const struct tt_safetensors_entry *entry = &f->files[n].entries[e];
                int64_t count = count_of(entry), border = count * 2 / 5;
                struct tt_writer_part part = {.dtype = TT_F32, .entry = entry};
                part.first = rank == 0 ? 0 : border;
                part.count = rank == 0 ? border : count - border;
                part.from = f->values[entry - f->entries] + part.first;
                assert_int_equal(tt_writer_add_part(file, &part), TT_OK);
            }
        }
    }
}

static int set_up(void **state)
{
    static const int64_t counts[ENTRIES] = {LARGE_COUNT, SMALL_COUNT, ODD_COUNT};
    static const char *const names[ENTRIES] = {"large", "small", "odd"};
    struct fixture *f = tt_calloc(1, sizeof *f);
    assert_non_null(f);
    test_temporary(f->folder, sizeof f->folder, "trimtab-writer-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    for (int e = 0; e < ENTRIES; e++) {
        tt_dtype dtype = e == 2 ? TT_F32 : TT_BF16;
        f->entries[e] =
            (struct tt_safetensors_entry){.name = names[e], .dtype = dtype, .rank = 1, .dims = {counts[e]}};
        snprintf(f->entries[e].dtype_name, sizeof f->entries[e].dtype_name, "%s",
                 dtype == TT_F32 ? "F32" : "BF16");
        f->values[e] = tt_alloc_aligned((size_t)counts[e] * sizeof(float));
        assert_non_null(f->values[e]);
        for (int64_t i = 0; i < counts[e]; i++) f->values[e][i] = (float)((i * 31 + e) % 1009) - 500.0f;
    }
    lay_out(&f->files[0], "two.safetensors", f->entries, 2);
    lay_out(&f->files[1], "one.safetensors", f->entries + 2, 1);
    /* Entries are sorted when they are laid out: values go with their names. */
    if (strcmp(f->entries[0].name, "large") != 0) {
        float *first = f->values[0];
        f->values[0] = f->values[1];
        f->values[1] = first;
    }
    share(f);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(tt_dir_remove(f->folder), TT_OK);
    for (int rank = 0; rank < RANKS; rank++) tt_writer_deinit(&f->writers[rank]);
    for (int n = 0; n < 2; n++) tt_str_deinit(&f->files[n].header);
    for (int e = 0; e < ENTRIES; e++) tt_free(f->values[e]);
    tt_free(f);
    return 0;
}

static void check_file(const struct fixture *f, const struct tt_weights_file *file)
{
    char path[PATH_BYTES];
    struct tt_safetensors *reader;
    snprintf(path, sizeof path, "%s/%s", f->folder, file->name);
    assert_int_equal(tt_safetensors_open(path, &reader), TT_OK);
    for (size_t e = 0; e < file->count; e++) {
        const struct tt_safetensors_entry *entry = tt_safetensors_find(reader, file->entries[e].name);
        const float *values = f->values[&file->entries[e] - f->entries];
        int64_t count = count_of(&file->entries[e]), wrong = 0;
        float *got = tt_alloc_aligned((size_t)count * sizeof *got);
        assert_non_null(entry);
        assert_non_null(got);
        assert_int_equal(tt_safetensors_read(reader, entry, 0, count, got, TT_F32), TT_OK);
        for (int64_t i = 0; i < count; i++) {
            float wanted = values[i];
            if (entry->dtype == TT_BF16) {
                uint16_t rounded;
                assert_true(tt_dtype_convert(&rounded, TT_BF16, &values[i], TT_F32, 1));
                assert_true(tt_dtype_convert(&wanted, TT_F32, &rounded, TT_BF16, 1));
            }
            wrong += got[i] != wanted;
        }
        assert_int_equal(wrong, 0);
        tt_free(got);
    }
    tt_safetensors_close(reader);
}

static void shares_add_up_to_files_and_their_sums(void **state)
{
    struct fixture *f = *state;
    static const bool expected[RANKS] = {true, true};
    struct tt_manifest manifest = {.step = 3};
    for (int round = 0; round < 2; round++) { /* a writer is used again for the next save */
        tt_manifest_deinit(&manifest);
        manifest = (struct tt_manifest){.step = 3};
        for (int rank = RANKS - 1; rank >= 0; rank--)
            assert_int_equal(tt_writer_run(&f->writers[rank]), TT_OK);
        assert_int_equal(tt_writer_collect(&f->writers[0], expected, RANKS, &manifest), TT_OK);
    }
    assert_int_equal(manifest.count, 2);
    assert_int_equal(tt_manifest_verify(&manifest, f->folder, NULL), TT_OK);
    for (int n = 0; n < 2; n++) check_file(f, &f->files[n]);
    tt_manifest_deinit(&manifest);
}

static void no_note_of_what_is_not_whole(void **state)
{
    struct fixture *f = *state;
    char note[PATH_BYTES];
    snprintf(note, sizeof note, "%s/.written-1", f->folder);
    atomic_store(&f->cancelled, true);
    assert_int_equal(tt_writer_run(&f->writers[1]), TT_ERR_CANCELLED);
    assert_false(tt_path_exists(note));
    atomic_store(&f->cancelled, false);
    for (uint64_t nth = 1; nth < 30; nth += 7) { /* whichever thread it strikes */
        tt_file_fail_at(nth, ENOSPC, true);
        assert_int_equal(tt_writer_run(&f->writers[1]), TT_ERR_IO);
        assert_non_null(strstr(tt_error_last()->message, f->folder));
        tt_file_fail_at(0, 0, false);
        assert_false(tt_path_exists(note));
    }
    assert_int_equal(tt_writer_run(&f->writers[1]), TT_OK);
    assert_true(tt_path_exists(note));
}

/* Rank 1's note never comes: whoever waits for it is told why, and soon. */
static void a_wait_ends(void **state)
{
    struct fixture *f = *state;
    bool expected[RANKS] = {true, true};
    struct tt_manifest manifest = {.step = 3};
    assert_int_equal(tt_writer_run(&f->writers[0]), TT_OK);
    atomic_store(&f->all_written, true);
    f->writers[0].patience_seconds = 0.2;
    assert_int_equal(tt_writer_collect(&f->writers[0], expected, RANKS, &manifest), TT_ERR_IO);
    assert_non_null(strstr(tt_error_last()->message, ".written-1"));
    assert_int_equal(tt_writer_run(&f->writers[0]), TT_OK);
    f->writers[0].patience_seconds = 3600;
    atomic_store(&f->cancelled, true);
    assert_int_equal(tt_writer_collect(&f->writers[0], expected, RANKS, &manifest), TT_ERR_CANCELLED);
    atomic_store(&f->cancelled, false);
    f->writers[0].patience_seconds = 20;
    atomic_store(&f->stop.requests, 1);
    double start = tt_clock_seconds();
    assert_int_equal(tt_writer_run(&f->writers[0]), TT_OK);
    assert_int_equal(tt_writer_collect(&f->writers[0], expected, RANKS, &manifest), TT_ERR_IO);
    assert_true(tt_clock_seconds() - start < 15);
    f->writers[0].patience_seconds = 3600;
    atomic_store(&f->stop.requests, 0);
    assert_int_equal(tt_dir_remove(f->folder), TT_OK);
    assert_int_equal(tt_writer_collect(&f->writers[0], (bool[RANKS]){false, true}, RANKS, &manifest),
                     TT_ERR_IO);
    assert_non_null(strstr(tt_error_last()->message, "was removed"));
    assert_int_equal(tt_dir_create(f->folder), TT_OK);
    tt_manifest_deinit(&manifest);
}

static tt_status fail_open(const struct fixture *f)
{
    return tt_fail(TT_ERR_DATA, "cannot open '%s/a file': No such file or directory", f->folder);
}

/* A save that fails in a folder that somebody removes fails because of that, and is worth another try. */
static void a_removed_folder_is_the_cause(void **state)
{
    struct fixture *f = *state;
    struct tt_path path;
    struct tt_writer *writer = &f->writers[0];
    for (int rank = 0; rank < RANKS; rank++) assert_int_equal(tt_writer_run(&f->writers[rank]), TT_OK);
    assert_int_equal(tt_writer_explain(writer, true, TT_OK), TT_OK);
    assert_int_equal(tt_writer_explain(writer, true, fail_open(f)), TT_ERR_DATA);
    assert_non_null(strstr(tt_error_last()->message, "cannot open"));
    assert_int_equal(tt_path_set(&path, f->folder, f->files[1].name), TT_OK);
    assert_int_equal(unlink(path.text), 0);
    assert_int_equal(tt_writer_explain(writer, false, fail_open(f)), TT_ERR_DATA);
    assert_int_equal(tt_writer_explain(writer, true, fail_open(f)), TT_ERR_IO);
    assert_non_null(strstr(tt_error_last()->message, f->files[1].name));
    assert_int_equal(tt_dir_remove(f->folder), TT_OK);
    tt_file_fail_at(1, ENOSPC, true); /* it could not be made */
    assert_int_equal(tt_writer_run(writer), TT_ERR_IO);
    tt_file_fail_at(0, 0, false);
    assert_non_null(strstr(tt_error_last()->message, strerror(ENOSPC)));
    assert_int_equal(tt_writer_explain(writer, false, fail_open(f)), TT_ERR_IO);
    assert_non_null(strstr(tt_error_last()->message, "was removed while it was written"));
    assert_int_equal(tt_writer_explain(writer, true, tt_fail(TT_ERR_MEMORY, "none")), TT_ERR_MEMORY);
    assert_int_equal(tt_dir_create(f->folder), TT_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(shares_add_up_to_files_and_their_sums, set_up, tear_down),
        cmocka_unit_test_setup_teardown(no_note_of_what_is_not_whole, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_wait_ends, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_removed_folder_is_the_cause, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
