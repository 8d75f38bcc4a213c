/* A kind of attachment beside images (engine/attached.h): frames, FRAME_WIDTH numbers for each sequence. A rank that
 * has the kind plans its memory, brings its part of a micro batch beside the tokens, and copies the next one ahead; one
 * that lacks it refuses such a micro batch. No file of the engine knows of frames. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "engine/rank_pass.h"
#include "support/must.h"
#include "support/objective_run.h"

enum { FRAME_WIDTH = 1000, FRAMES = TT_ATTACHED_IMAGES + 1 };

/* On the host of a micro batch. */
struct frames {
    int64_t count;
    const float *values;
};

struct memory {
    struct tt_buffer *buffer;
    const struct frames *ahead;
    int prepared, copies, forgotten;
};

static tt_status create(const struct tt_rank_config *config, struct tt_rank *rank, void **state)
{
    size_t bytes = (size_t)config->limits.sequences * FRAME_WIDTH * sizeof(float);
    struct memory *memory = tt_calloc(1, sizeof *memory);
    if (memory == NULL) return TT_ERR_MEMORY;
    *state = memory;
    return tt_buffer_create(rank->device, bytes, TT_PURPOSE_BATCH, &memory->buffer);
}

static void destroy(void *state)
{
    struct memory *memory = state;
    tt_buffer_destroy(memory->buffer);
    tt_free(memory);
}

static tt_status copy(struct tt_rank *rank, struct memory *memory, const struct frames *frames)
{
    size_t bytes = (size_t)frames->count * FRAME_WIDTH * sizeof(float);
    if (bytes > tt_buffer_bytes(memory->buffer))
        return tt_fail(TT_ERR_INTERNAL, "more frames than sequences");
    memory->copies++;
    return tt_copy_to_device(rank->stream, tt_buffer_data(memory->buffer), frames->values, bytes);
}

static struct tt_attachment attachment_of(const struct memory *memory, int64_t count)
{
    return (struct tt_attachment){
        .kind = (enum tt_attachment_kind)FRAMES,
        .count = count,
        .pixels_PC = tt_tensor_2d(tt_buffer_data(memory->buffer), TT_F32, count, FRAME_WIDTH)};
}

static tt_status attach(struct tt_rank *rank, void *state, const struct tt_micro_part *part,
                        struct tt_attachment *to)
{
    struct memory *memory = state;
    const struct frames *frames = part->batch;
    if (memory->ahead != frames) TT_TRY(copy(rank, memory, frames));
    memory->ahead = NULL;
    *to = attachment_of(memory, frames->count);
    return TT_OK;
}

static tt_status attach_largest(struct tt_rank *rank, void *state, const struct tt_batch_limits *limits,
                                struct tt_attachment *to)
{
    (void)rank;
    *to = attachment_of(state, limits->sequences);
    return TT_OK;
}

static tt_status prepare(struct tt_rank *rank, void *state, const struct tt_attachment *attachment,
                         const struct tt_pass *pass)
{
    struct memory *memory = state;
    (void)rank;
    assert_ptr_equal(attachment, tt_device_batch_find(pass->in.batch, (enum tt_attachment_kind)FRAMES));
    memory->prepared++;
    return TT_OK;
}

static bool takes_ahead(const struct tt_rank *rank, const void *state)
{
    (void)rank;
    return state != NULL;
}

static tt_status attach_ahead(struct tt_rank *rank, void *state, const struct tt_micro_part *part)
{
    struct memory *memory = state;
    memory->ahead = part->batch;
    return copy(rank, memory, part->batch);
}

static void forget_ahead(void *state)
{
    struct memory *memory = state;
    memory->ahead = NULL;
    memory->forgotten++;
}

static const struct tt_attached_ops frames_ops = {.kind = (enum tt_attachment_kind)FRAMES,
                                                  .create = create,
                                                  .destroy = destroy,
                                                  .attach = attach,
                                                  .attach_largest = attach_largest,
                                                  .prepare = prepare,
                                                  .takes_ahead = takes_ahead,
                                                  .attach_ahead = attach_ahead,
                                                  .forget_ahead = forget_ahead};

static const struct tt_attached_ops *const with_frames[] = {&frames_ops, NULL};

/* A micro batch of the run's first step, with a frame for each sequence. */
struct scene {
    struct tt_feed feed;
    struct tt_micro micro;
    struct frames frames;
    float values[TEST_SAMPLES * FRAME_WIDTH];
};

static void make_micro(struct test_run *run, struct scene *scene)
{
    struct tt_step_facts facts;
    test_must(tt_feed_of_rows(run->sampler, 0, &scene->feed));
    test_must(tt_feed_step(&scene->feed, 0, &facts));
    test_must(tt_feed_micro(&scene->feed, 0, 0, &scene->micro));
    scene->frames = (struct frames){scene->micro.tokens.sequence_count, scene->values};
    for (int64_t i = 0; i < scene->frames.count * FRAME_WIDTH; i++) scene->values[i] = 1.0f / (float)(i + 1);
    scene->micro.parts[scene->micro.part_count++] =
        (struct tt_micro_part){(enum tt_attachment_kind)FRAMES, &scene->frames, 1.0};
}

static struct test_setup setup_of(const struct tt_attached_ops *const *attached)
{
    return (struct test_setup){.options = test_lora(TT_F32), .group_size = 1, .attached = attached};
}

static void parts_of_any_kind_reach_the_pass(void **state)
{
    (void)state;
    struct scene scene = {.feed = {0}};
    struct test_run run;
    struct tt_pass pass;
    const struct test_setup setup = setup_of(with_frames);
    test_must(test_open_run(&run, &setup));
    make_micro(&run, &scene);
    struct memory *memory = tt_rank_attached_state(&run.rank, (enum tt_attachment_kind)FRAMES);
    test_must(tt_rank_upload_micro(&run.rank, &scene.micro, &pass));
    test_must(tt_rank_prepare(&run.rank, &pass));
    const struct tt_device_batch *batch = pass.in.batch;
    const struct tt_attachment *frames = tt_device_batch_find(batch, (enum tt_attachment_kind)FRAMES);
    assert_int_equal(batch->token_count, scene.micro.tokens.token_count);
    assert_int_equal(batch->attachment_count, 1);
    assert_int_equal(frames->count, scene.frames.count);
    assert_memory_equal(frames->pixels_PC.data, scene.values,
                        (size_t)scene.frames.count * FRAME_WIDTH * sizeof(float));
    assert_int_equal(memory->prepared, 1);
    assert_int_equal(memory->copies, 1);
    assert_true(tt_rank_takes_ahead(&run.rank));
    test_must(tt_rank_upload_ahead(&run.rank, &scene.micro));
    test_must(tt_rank_upload_micro(&run.rank, &scene.micro, &pass));
    assert_int_equal(memory->copies, 2); /* the upload has found it there */
    tt_rank_forget_ahead(&run.rank);
    assert_int_equal(memory->forgotten, 1);
    tt_feed_deinit(&scene.feed);
    test_close_run(&run);
}

static void a_plan_counts_every_kind(void **state)
{
    (void)state;
    struct test_run with, without;
    const struct test_setup frames = setup_of(with_frames), plain = setup_of(NULL);
    test_must(test_open_run(&with, &frames));
    test_must(test_open_run(&without, &plain));
    size_t more = with.plan.memory.peak[TT_PURPOSE_BATCH] - without.plan.memory.peak[TT_PURPOSE_BATCH];
    assert_true(more >= (size_t)with.rank.limits.sequences * FRAME_WIDTH * sizeof(float));
    test_close_run(&without);
    test_close_run(&with);
}

static void an_unknown_kind_is_refused(void **state)
{
    (void)state;
    struct scene scene = {.feed = {0}};
    struct test_run run;
    struct tt_pass pass;
    const struct test_setup plain = setup_of(NULL);
    test_must(test_open_run(&run, &plain));
    make_micro(&run, &scene);
    assert_false(tt_rank_takes_ahead(&run.rank));
    assert_int_equal(tt_rank_upload_micro(&run.rank, &scene.micro, &pass), TT_ERR_INTERNAL);
    assert_string_equal(tt_error_last()->message,
                        "a micro batch has an attachment that its rank has no memory for");
    tt_feed_deinit(&scene.feed);
    test_close_run(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_of_any_kind_reach_the_pass),
        cmocka_unit_test(a_plan_counts_every_kind),
        cmocka_unit_test(an_unknown_kind_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
