/* The reader: whatever the threads, the chunks, the types and the kind of memory, what arrives is what
 * tt_safetensors_read gives; and what becomes of a truncated file, a request to stop, a device that fails and
 * memory that is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/rng.h"
#include "checkpoint/reader.h"
#include "load_device.h"
#include "support/must.h"
#include "support/temporary.h"

enum { TENSORS = 6, RANGES_MAX = 64, GUARD = 64 };

static const struct {
    const char *name;
    tt_dtype dtype;
    int64_t count;
} tensors[TENSORS] = {
    {"wide", TT_F32, 70001}, {"half", TT_F16, 33333}, {"brain", TT_BF16, 100003},
    {"twice", TT_F64, 5001}, {"one", TT_BF16, 1},     {"brain.two", TT_BF16, 4096},
};

struct place {
    char path[256];
    struct tt_safetensors *file;
    struct tt_device *device;
    struct tt_stream *stream;
    struct late_device *late;
    struct tt_buffer *memory;
    struct tt_read_range ranges[RANGES_MAX];
    size_t range_count, used_bytes;
};

static void write_file(struct place *place)
{
    struct tt_safetensors_entry entries[TENSORS];
    struct tt_str header = {0};
    uint64_t bytes;
    int descriptor;
    for (int i = 0; i < TENSORS; i++)
        entries[i] = (struct tt_safetensors_entry){
            .name = tensors[i].name, .dtype = tensors[i].dtype, .rank = 1, .dims = {tensors[i].count}};
    test_must(tt_safetensors_layout(entries, TENSORS, &header, &bytes));
    test_must(tt_file_create(place->path, bytes, &descriptor));
    test_must(tt_file_pwrite(descriptor, place->path, header.data, header.bytes, 0));
    for (int i = 0; i < TENSORS; i++) {
        int64_t count = (int64_t)(entries[i].bytes / tt_dtype_bytes(entries[i].dtype));
        float *values = tt_alloc_aligned((size_t)count * sizeof *values);
        char *stored = tt_alloc_aligned(entries[i].bytes);
        struct tt_rng rng = tt_rng_derive(tt_rng_make(3), entries[i].name);
        for (int64_t e = 0; e < count; e++) values[e] = (float)tt_rng_normal(rng, (uint64_t)e);
        assert_true(tt_dtype_convert(stored, entries[i].dtype, values, TT_F32, (size_t)count));
        test_must(tt_file_pwrite(descriptor, place->path, stored, entries[i].bytes, entries[i].offset));
        tt_free(values);
        tt_free(stored);
    }
    test_must(tt_file_sync_close(descriptor, place->path));
    tt_str_deinit(&header);
}

static void set_up(struct place *place, bool late)
{
    *place = (struct place){0};
    test_temporary_of(place->path, sizeof place->path, "trimtab-reader", (long)getpid(), ".safetensors");
    write_file(place);
    test_must(tt_safetensors_open(place->path, &place->file));
    if (late) place->late = tt_calloc(1, sizeof *place->late);
    test_must(late_device_open(place->late, 4, &place->device));
    test_must(tt_stream_create(place->device, &place->stream));
    test_must(tt_buffer_create(place->device, 8 << 20, TT_PURPOSE_WEIGHTS, &place->memory));
}

static void tear_down(struct place *place)
{
    tt_buffer_destroy(place->memory);
    tt_stream_destroy(place->stream);
    tt_device_close(place->device);
    tt_free(place->late);
    tt_safetensors_close(place->file);
    (void)unlink(place->path);
}

/* A guard of untouched bytes stands after every range. */
static struct tt_read_range *add(struct place *place, const char *name, int64_t first, int64_t count,
                                 tt_dtype dtype, int64_t columns, int64_t row_stride)
{
    struct tt_read_range *range = &place->ranges[place->range_count++];
    int64_t span = count;
    if (columns > 0) span = ((first + count - 1) / columns - first / columns + 1) * row_stride;
    *range = (struct tt_read_range){
        .file = place->file,
        .entry = tt_safetensors_find(place->file, name),
        .first = first,
        .count = count,
        .to = (char *)tt_buffer_data(place->memory) + place->used_bytes,
        .dtype = dtype,
        .columns = columns,
        .row_stride = row_stride,
        .name = name,
    };
    assert_non_null(range->entry);
    place->used_bytes += ((size_t)span * tt_dtype_bytes(dtype) + GUARD + 63) / 64 * 64;
    assert_true(place->used_bytes <= tt_buffer_bytes(place->memory));
    return range;
}

static void add_all(struct place *place)
{
    static const tt_dtype types[] = {TT_F32, TT_BF16, TT_F16};
    place->range_count = place->used_bytes = 0;
    memset(tt_buffer_data(place->memory), 0xa5, tt_buffer_bytes(place->memory));
    for (int t = TENSORS - 1; t >= 0; t--)
        for (int d = 0; d < 3; d++) add(place, tensors[t].name, 0, tensors[t].count, types[d], 0, 0);
    add(place, "brain", 77, 50001, TT_BF16, 0, 0);
    add(place, "wide", 70000, 1, TT_BF16, 0, 0);
    add(place, "twice", 1000, 1, TT_F64, 0, 0);
    add(place, "brain", 0, 90000, TT_BF16, 100, 116); /* rows with room behind them */
    add(place, "brain", 33, 9001, TT_BF16, 64, 65);
    add(place, "wide", 5, 60000, TT_BF16, 7, 9);
    add(place, "half", 1, 2000, TT_F32, 2000, 5000);
    for (size_t i = 0; i < place->range_count; i += 3) place->ranges[i].in_host = true;
}

static void check_range(const struct tt_read_range *range)
{
    size_t element = tt_dtype_bytes(range->dtype);
    char *wanted = tt_alloc_aligned((size_t)range->count * element);
    const unsigned char *got = range->to, zeros[8] = {0};
    test_must(
        tt_safetensors_read(range->file, range->entry, range->first, range->count, wanted, range->dtype));
    for (int64_t e = 0; e < range->count; e++) {
        bool row_ends = range->columns > 0 && (range->first + e + 1) % range->columns == 0;
        if (memcmp(got, wanted + (size_t)e * element, element) != 0)
            fail_msg("'%s' as %s: element %lld differs", range->name, tt_dtype_name(range->dtype),
                     (long long)e);
        got += element;
        if (!row_ends || e + 1 == range->count) continue;
        for (int64_t gap = 0; gap < range->row_stride - range->columns; gap++, got += element) {
            bool kept = got[0] == 0xa5 && got[element - 1] == 0xa5;
            if (!kept) assert_memory_equal(got, zeros, element);
        }
    }
    for (int i = 0; i < GUARD; i++) assert_int_equal(got[i], 0xa5);
    tt_free(wanted);
}

static void check_bytes(bool late)
{
    static const int threads[] = {1, 2, 8, 0};
    static const size_t chunks[] = {64, 1000, 65536, 0};
    struct place place;
    set_up(&place, late);
    for (size_t t = 0; t < 4; t++) {
        for (size_t c = 0; c < 4; c++) {
            struct tt_reader_config config = {.threads = threads[t], .chunk_bytes = chunks[c]};
            if (late) place.late->queued = place.late->done = place.late->host_peak = 0;
            add_all(&place);
            test_must(tt_reader_run(place.stream, place.ranges, place.range_count, &config));
            for (size_t i = 0; i < place.range_count; i++) check_range(&place.ranges[i]);
            struct tt_memory_use memory;
            tt_device_memory(place.device, &memory);
            assert_int_equal(memory.host_total, 0);
            size_t slots = 2 * (threads[t] > 0 ? (size_t)threads[t] : 4);
            size_t most = slots * ((chunks[c] > 0 ? chunks[c] : TT_READER_CHUNK_BYTES) + 256);
            if (late) assert_in_range(place.late->host_peak, 1, most);
        }
    }
    tear_down(&place);
}

static void test_in_place(void **state)
{
    (void)state;
    check_bytes(false);
}

static void test_through_buffers(void **state)
{
    (void)state;
    check_bytes(true);
}

static void test_nothing(void **state)
{
    struct place place;
    (void)state;
    set_up(&place, true);
    test_must(tt_reader_run(place.stream, place.ranges, 0, &(struct tt_reader_config){0}));
    tear_down(&place);
}

static void check_message(const char *const *texts)
{
    char text[2048];
    tt_error_format(tt_error_last(), text, sizeof text);
    for (; *texts != NULL; texts++)
        if (strstr(text, *texts) == NULL) fail_msg("no '%s' in: %s", *texts, text);
}

static void test_truncated(void **state)
{
    (void)state;
    for (int late = 0; late < 2; late++) {
        for (int threads = 1; threads <= 8; threads *= 2) {
            struct place place;
            struct tt_reader_config config = {.threads = threads, .chunk_bytes = 4096};
            set_up(&place, late);
            add(&place, "brain", 0, 100003, TT_BF16, 0, 0);
            uint64_t end = place.ranges[0].entry->offset + place.ranges[0].entry->bytes;
            assert_int_equal(truncate(place.path, (off_t)end - 1001), 0);
            assert_int_equal(tt_reader_run(place.stream, place.ranges, 1, &config), TT_ERR_DATA);
            check_message((const char *const[]){place.path, "ends too early", "tensor 'brain'",
                                                "loading 'brain'", NULL});
            tear_down(&place);
        }
    }
}

static void test_unreadable_type(void **state)
{
    struct place place;
    (void)state;
    set_up(&place, true);
    add(&place, "brain", 0, 100, TT_I32, 0, 0);
    assert_int_equal(tt_reader_run(place.stream, place.ranges, 1, &(struct tt_reader_config){0}),
                     TT_ERR_UNSUPPORTED);
    tear_down(&place);
}

static void test_cancel(void **state)
{
    struct place place;
    struct tt_cancel cancel = {0};
    struct tt_reader_config config = {.threads = 3, .chunk_bytes = 512, .cancel = &cancel};
    (void)state;
    for (int late = 0; late < 2; late++) {
        set_up(&place, late);
        add_all(&place);
        test_must(tt_reader_run(place.stream, place.ranges, place.range_count, &config));
        atomic_store(&cancel.requests, 1);
        assert_int_equal(tt_reader_run(place.stream, place.ranges, place.range_count, &config),
                         TT_ERR_CANCELLED);
        atomic_store(&cancel.requests, 0);
        if (late) { /* in the middle */
            place.late->cancel = &cancel;
            place.late->cancel_at = place.late->queued + 100;
            assert_int_equal(tt_reader_run(place.stream, place.ranges, place.range_count, &config),
                             TT_ERR_CANCELLED);
            assert_true(place.late->queued < place.late->cancel_at + 20);
            atomic_store(&cancel.requests, 0);
        }
        tear_down(&place);
    }
}

static void test_device_fails(void **state)
{
    struct place place;
    struct tt_reader_config config = {.threads = 4, .chunk_bytes = 512};
    (void)state;
    set_up(&place, true);
    add_all(&place);
    for (size_t nth = 1; nth < 300; nth += 37) {
        place.late->queued = place.late->done = 0;
        place.late->fail_at = nth;
        assert_int_equal(tt_reader_run(place.stream, place.ranges, place.range_count, &config),
                         TT_ERR_DEVICE);
        check_message((const char *const[]){"the wire broke", NULL});
    }
    tear_down(&place);
}

static void test_allocations_fail(void **state)
{
    (void)state;
    for (int late = 0; late < 2; late++) {
        struct place place;
        struct tt_reader_config config = {.threads = 4, .chunk_bytes = 16384};
        set_up(&place, late);
        add_all(&place);
        uint64_t before = tt_alloc_count(), live = tt_alloc_live();
        test_must(tt_reader_run(place.stream, place.ranges, place.range_count, &config));
        uint64_t count = tt_alloc_count() - before;
        assert_true(count > 5);
        for (uint64_t nth = 1; nth <= count; nth++) {
            if (late) place.late->queued = place.late->done = 0;
            tt_alloc_fail_at(nth);
            tt_status status = tt_reader_run(place.stream, place.ranges, place.range_count, &config);
            tt_alloc_fail_at(0);
            if (status != TT_ERR_MEMORY)
                fail_msg("allocation %d of %d: no error of memory", (int)nth, (int)count);
            assert_int_equal(tt_alloc_live(), live);
        }
        tear_down(&place);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_place),        cmocka_unit_test(test_through_buffers),
        cmocka_unit_test(test_nothing),         cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_unreadable_type), cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_device_fails),    cmocka_unit_test(test_allocations_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
