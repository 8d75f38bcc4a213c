/* What a rehearsal notes are the convolutions that a pass computes: the same calls in the same order, with the same
 * geometry, shapes, strides, types and options, and tensors at the same remainders of 64 bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "backend/device_impl.h"
#include "base/alloc.h"
#include "checkpoint/load.h"
#include "engine/rank_images.h"
#include "engine/rank_pass.h"
#include "engine/rehearsal.h"
#include "model/retinanet.h"
#include "support/must.h"
#include "support/tuning.h"

enum { IMAGES = 2, HEIGHT = 64, WIDTH = 96, CHANNELS = TT_DETECT_CHANNELS, CLASSES = 4 };

/* The calls of a pass on the real device. */
static struct tt_conv2d_requests calls;

static tt_status forward(struct tt_stream *stream, const struct tt_conv2d_forward_args *args)
{
    const struct tt_conv2d_request request = {TT_CONV2D_FORWARD, {.forward = *args}};
    TT_TRY(tt_conv2d_requests_add(&calls, &request));
    return tt_cpu_device_table.ops->conv2d_forward(stream, args);
}

static tt_status backward_input(struct tt_stream *stream, const struct tt_conv2d_backward_input_args *args)
{
    const struct tt_conv2d_request request = {TT_CONV2D_BACKWARD_INPUT, {.input = *args}};
    TT_TRY(tt_conv2d_requests_add(&calls, &request));
    return tt_cpu_device_table.ops->conv2d_backward_input(stream, args);
}

static tt_status backward_weight(struct tt_stream *stream, const struct tt_conv2d_backward_weight_args *args)
{
    const struct tt_conv2d_request request = {TT_CONV2D_BACKWARD_WEIGHT, {.weight = *args}};
    TT_TRY(tt_conv2d_requests_add(&calls, &request));
    return tt_cpu_device_table.ops->conv2d_backward_weight(stream, args);
}

static void tensors_agree(tt_tensor a, tt_tensor b, bool placed)
{
    assert_int_equal(a.dtype, b.dtype);
    assert_int_equal(a.rank, b.rank);
    assert_int_equal(tt_tensor_is_empty(a), tt_tensor_is_empty(b));
    if (tt_tensor_is_empty(a)) return;
    for (int i = 0; i < a.rank; i++) {
        assert_int_equal(a.dims[i], b.dims[i]);
        assert_int_equal(a.strides[i], b.strides[i]);
    }
    if (placed) assert_int_equal((uintptr_t)a.data % 64, (uintptr_t)b.data % 64);
}

static void requests_agree(const struct tt_conv2d_request *a, const struct tt_conv2d_request *b)
{
    assert_int_equal(a->pass, b->pass);
    assert_memory_equal(&a->args.forward.geometry, &b->args.forward.geometry,
                        sizeof a->args.forward.geometry);
    if (a->pass == TT_CONV2D_FORWARD) {
        const struct tt_conv2d_forward_args *x = &a->args.forward, *y = &b->args.forward;
        tensors_agree(x->x_PC, y->x_PC, true);
        tensors_agree(x->w_OK, y->w_OK, false);
        tensors_agree(x->scale_O, y->scale_O, false);
        tensors_agree(x->bias_O, y->bias_O, false);
        tensors_agree(x->residual_QO, y->residual_QO, true);
        tensors_agree(x->y_QO, y->y_QO, true);
        assert_true(x->relu == y->relu && x->padded == y->padded && x->again == y->again);
    } else if (a->pass == TT_CONV2D_BACKWARD_INPUT) {
        const struct tt_conv2d_backward_input_args *x = &a->args.input, *y = &b->args.input;
        tensors_agree(x->dz_QO, y->dz_QO, true);
        tensors_agree(x->w_OK, y->w_OK, false);
        tensors_agree(x->dx_PC, y->dx_PC, true);
        assert_true(x->accumulate == y->accumulate && x->padded == y->padded && x->again == y->again);
    } else {
        const struct tt_conv2d_backward_weight_args *x = &a->args.weight, *y = &b->args.weight;
        tensors_agree(x->x_PC, y->x_PC, true);
        tensors_agree(x->dz_QO, y->dz_QO, true);
        tensors_agree(x->dw_OK, y->dw_OK, false);
        assert_true(x->padded == y->padded);
    }
}

struct network {
    bool batch_norm, second;
    tt_dtype dtype;
    bool trains;
};

static void make_rank(const struct network *network, struct tt_comm *comm, struct tt_model_facts *facts,
                      struct tt_rank *rank)
{
    struct tt_retinanet_config config = tt_retinanet_config_default(CLASSES);
    const struct tt_load_source source = {.seed = 5};
    config.width = 8;
    config.pyramid = 32;
    for (int i = 0; i < TT_RETINANET_STAGES; i++) config.blocks[i] = 1;
    config.trainable_stages = 3;
    config.batch_norm = network->batch_norm;
    config.head_groups = network->second ? TT_RETINANET_GROUPS : 0;
    test_must(tt_retinanet_facts(&config, facts));
    struct tt_objective detection;
    test_must(tt_objective_init("detection", &detection));
    const struct tt_rank_config rank_config = {
        .device = {.kind = "cpu", .threads = 1, .tuning = test_tuning()},
        .world = comm,
        .shard_comm = comm,
        .strategy = TT_NO_SHARD,
        .model_facts = facts,
        .model_options = {.compute_dtype = network->dtype, .random_init = true},
        .objective = &detection,
        .limits = {.images = IMAGES, .height = HEIGHT, .width = WIDTH, .boxes = 2},
        .train = network->trains,
        .reduce_dtype = TT_F32,
        .workspace_bytes = 256 << 20,
    };
    test_must(tt_rank_init(&rank_config, rank));
    test_must(tt_rank_load(rank, &source));
}

/* `as_gpu`: as on a device whose memory is not the host's, where the heads' outputs are padded. */
static void run(struct tt_rank *rank, bool trains, bool as_gpu)
{
    size_t count = (size_t)IMAGES * HEIGHT * WIDTH * CHANNELS;
    tt_dtype dtype = rank->model->options.compute_dtype;
    void *pixels = tt_alloc_aligned(count * sizeof(float));
    assert_non_null(pixels);
    memset(pixels, 0, count * sizeof(float)); /* zeros of either type */
    const int32_t offsets[IMAGES + 1] = {0, 1, 2}, labels[] = {1, 2};
    const float boxes[][4] = {{4, 4, 40, 40}, {10, 8, 60, 50}};
    const struct tt_detect_batch batch = {.image_count = IMAGES,
                                          .height = HEIGHT,
                                          .width = WIDTH,
                                          .pixel_dtype = dtype,
                                          .pixels = pixels,
                                          .box_count = 2,
                                          .offsets = offsets,
                                          .boxes = &boxes[0][0],
                                          .labels = labels};
    struct tt_pass pass;
    const struct tt_micro micro = {.parts = {tt_images_part(&batch, 0.5)}, .part_count = 1};
    test_must(tt_rank_upload_micro(rank, &micro, &pass));
    pass.in.training = pass.in.gradient = trains;
    pass.in.want_logits = !trains;
    rank->device->is_host = !as_gpu;
    test_must(tt_executor_forward(rank->executor, &pass));
    if (trains) test_must(tt_executor_backward(rank->executor, &pass, true));
    tt_executor_end(rank->executor);
    rank->device->is_host = true;
    tt_free(pixels);
}

static void passes_are_rehearsed(void **state)
{
    (void)state;
    for (int i = 0; i < 32; i++) {
        const struct network network = {i & 1, i & 2, i & 4 ? TT_BF16 : TT_F32, i & 8};
        struct tt_rank rank = {0};
        struct tt_comm *comm = NULL;
        struct tt_model_facts *facts = tt_calloc(1, sizeof *facts);
        struct tt_conv2d_requests noted = {0};
        const struct tt_canvas canvas = {IMAGES, HEIGHT, WIDTH, network.trains};
        test_must(tt_comm_create_self(&comm));
        make_rank(&network, comm, facts, &rank);
        struct tt_device_table table = *rank.device->table;
        struct tt_op_table ops = *table.ops;
        ops.conv2d_forward = forward;
        ops.conv2d_backward_input = backward_input;
        ops.conv2d_backward_weight = backward_weight;
        table.ops = &ops;
        rank.device->table = &table;
        run(&rank, network.trains, i & 16);
        rank.device->table = &tt_cpu_device_table;
        test_must(tt_rehearse(&rank, i & 16 ? "h200" : "cpu", &canvas, &noted));
        assert_int_equal(noted.count, calls.count);
        assert_true(noted.count > (network.trains ? 100 : 50));
        for (size_t k = 0; k < noted.count; k++) requests_agree(&noted.items[k], &calls.items[k]);
        tt_conv2d_requests_deinit(&noted);
        tt_conv2d_requests_deinit(&calls);
        tt_rank_deinit(&rank);
        tt_comm_destroy(comm);
        tt_free(facts);
    }
}

/* Each canvas once, and a device without such a function not at all. */
static int prepared;
static size_t prepared_count;

static tt_status count_requests(struct tt_stream *stream, const struct tt_conv2d_requests *requests)
{
    (void)stream;
    prepared++;
    prepared_count = requests->count;
    return TT_OK;
}

static void canvases_are_prepared_once(void **state)
{
    (void)state;
    const struct network network = {.dtype = TT_F32, .trains = true};
    struct tt_rank rank = {0};
    struct tt_comm *comm = NULL;
    struct tt_model_facts *facts = tt_calloc(1, sizeof *facts);
    test_must(tt_comm_create_self(&comm));
    make_rank(&network, comm, facts, &rank);
    struct tt_device_table table = *rank.device->table;
    table.conv2d_prepare = count_requests;
    rank.device->table = &table;
    struct tt_device_batch batch = {
        .attachments = {{.kind = TT_ATTACHED_IMAGES, .count = 2, .height = 64, .width = 96}},
        .attachment_count = 1};
    struct tt_attachment *images = &batch.attachments[0];
    const struct tt_device_batch tokens = {0};
    struct tt_pass pass = {.in = {.batch = &batch, .training = true, .gradient = true}};
    test_must(tt_rank_prepare(&rank, &pass));
    assert_int_equal(prepared, 0); /* the host prepares nothing */
    rank.device->is_host = false;
    test_must(tt_rank_prepare(&rank, &pass));
    test_must(tt_rank_prepare(&rank, &pass));
    assert_int_equal(prepared, 1);
    size_t training = prepared_count;
    pass.in.training = pass.in.gradient = false;
    test_must(tt_rank_prepare(&rank, &pass));
    assert_int_equal(prepared, 2);
    assert_true(prepared_count > 0 && prepared_count < training);
    images->width = 64;
    test_must(tt_rank_prepare(&rank, &pass));
    images->count = 1;
    test_must(tt_rank_prepare(&rank, &pass));
    assert_int_equal(prepared, 4);
    images->count = 0;
    test_must(tt_rank_prepare(&rank, &pass));
    pass.in.batch = &tokens;
    test_must(tt_rank_prepare(&rank, &pass));
    assert_int_equal(prepared, 4);
    rank.device->is_host = true;
    rank.device->table = &tt_cpu_device_table;
    tt_rank_deinit(&rank);
    tt_comm_destroy(comm);
    tt_free(facts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passes_are_rehearsed),
        cmocka_unit_test(canvases_are_prepared_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
