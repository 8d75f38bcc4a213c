/* Convolutions of RetinaNet ResNet-50 FPN at one image size, each as often as in a step of training with three trained
 * stages: forward, gradient of the input, gradient of the weight. One thread; processor time, the least of a few runs.
 *
 *     bench_conv [PIXELS [f32|bf16 [IMAGES [auto|panels|cuda]]]]      800 f32 1 auto
 *
 * A JSON line for each convolution and pass, and a line with the sum of all, weighted by their number. "panels": the
 * direct product alone. "cuda": on the first GPU, by the clock, runs queued behind each other.
 * bench/peers/torch_conv.py runs this and torch. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/ops/conv.h"
#include "base/clock.h"
#include "ops_timing.h"

enum { FORWARD = 1, INPUT = 2, WEIGHT = 4, ALL = 7, RUNS_MIN = 2, RUNS_MAX = 20 };

struct layer {
    const char *name;
    int level; /* of x: its side is PIXELS / 2^level, rounded up at each halving */
    int64_t in, out, kernel, stride;
    int count;
    int passes;
};

static const struct layer layers[] = {
    {"stem", 0, 8, 64, 7, 2, 1, FORWARD},
    {"layer1 conv1", 2, 256, 64, 1, 1, 3, FORWARD},
    {"layer1 conv2", 2, 64, 64, 3, 1, 3, FORWARD},
    {"layer1 conv3", 2, 64, 256, 1, 1, 4, FORWARD},
    {"layer2 first conv1", 2, 256, 128, 1, 1, 1, FORWARD | WEIGHT},
    {"layer2 first conv2", 2, 128, 128, 3, 2, 1, ALL},
    {"layer2 downsample", 2, 256, 512, 1, 2, 1, FORWARD | WEIGHT},
    {"layer2 conv1", 3, 512, 128, 1, 1, 3, ALL},
    {"layer2 conv2", 3, 128, 128, 3, 1, 3, ALL},
    {"layer2 conv3", 3, 128, 512, 1, 1, 4, ALL},
    {"layer3 first conv1", 3, 512, 256, 1, 1, 1, ALL},
    {"layer3 first conv2", 3, 256, 256, 3, 2, 1, ALL},
    {"layer3 downsample", 3, 512, 1024, 1, 2, 1, ALL},
    {"layer3 conv1", 4, 1024, 256, 1, 1, 5, ALL},
    {"layer3 conv2", 4, 256, 256, 3, 1, 5, ALL},
    {"layer3 conv3", 4, 256, 1024, 1, 1, 6, ALL},
    {"layer4 first conv1", 4, 1024, 512, 1, 1, 1, ALL},
    {"layer4 first conv2", 4, 512, 512, 3, 2, 1, ALL},
    {"layer4 downsample", 4, 1024, 2048, 1, 2, 1, ALL},
    {"layer4 conv1", 5, 2048, 512, 1, 1, 2, ALL},
    {"layer4 conv2", 5, 512, 512, 3, 1, 2, ALL},
    {"layer4 conv3", 5, 512, 2048, 1, 1, 3, ALL},
    {"pyramid inner 3", 3, 512, 256, 1, 1, 1, ALL},
    {"pyramid inner 4", 4, 1024, 256, 1, 1, 1, ALL},
    {"pyramid inner 5", 5, 2048, 256, 1, 1, 1, ALL},
    {"pyramid p6", 5, 256, 256, 3, 2, 1, ALL},
    {"pyramid p7", 6, 256, 256, 3, 2, 1, ALL},
    {"tower, pyramid 3", 3, 256, 256, 3, 1, 9, ALL},
    {"tower, pyramid 4", 4, 256, 256, 3, 1, 9, ALL},
    {"tower, pyramid 5", 5, 256, 256, 3, 1, 9, ALL},
    {"tower 6", 6, 256, 256, 3, 1, 8, ALL},
    {"tower 7", 7, 256, 256, 3, 1, 8, ALL},
    {"classes 3", 3, 256, 819, 3, 1, 1, ALL},
    {"classes 4", 4, 256, 819, 3, 1, 1, ALL},
    {"classes 5", 5, 256, 819, 3, 1, 1, ALL},
    {"boxes 3", 3, 256, 36, 3, 1, 1, ALL},
    {"boxes 4", 4, 256, 36, 3, 1, 1, ALL},
    {"boxes 5", 5, 256, 36, 3, 1, 1, ALL},
};

struct call {
    struct tt_conv2d_forward_args forward;
    struct tt_conv2d_backward_input_args input;
    struct tt_conv2d_backward_weight_args weight;
};

static double processor_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void run_pass(struct bench *bench, const struct call *call, int pass)
{
    if (pass == FORWARD) bench_must(tt_conv2d_forward(bench->stream, &call->forward));
    if (pass == INPUT) bench_must(tt_conv2d_backward_input(bench->stream, &call->input));
    if (pass == WEIGHT) bench_must(tt_conv2d_backward_weight(bench->stream, &call->weight));
}

static double measure_queued(struct bench *bench, const struct call *call, int pass)
{
    double best = 1e30;
    run_pass(bench, call, pass); /* makes the plan */
    for (int i = 0; i < RUNS_MIN; i++) {
        bench_must(tt_stream_synchronize(bench->stream));
        double start = tt_clock_seconds();
        for (int run = 0; run < RUNS_MAX; run++) run_pass(bench, call, pass);
        bench_must(tt_stream_synchronize(bench->stream));
        double took = (tt_clock_seconds() - start) / RUNS_MAX;
        if (took < best) best = took;
    }
    return best;
}

static double measure(struct bench *bench, const struct call *call, int pass)
{
    if (bench->gpu) return measure_queued(bench, call, pass);
    double best = 1e30, spent = 0;
    for (int i = 0; i < RUNS_MAX && (i < RUNS_MIN || spent < bench->seconds); i++) {
        double start = processor_seconds();
        run_pass(bench, call, pass);
        double took = processor_seconds() - start;
        spent += took;
        if (took < best) best = took;
    }
    return best;
}

static struct call make_call(struct bench *bench, const struct layer *layer, int64_t images, int64_t side,
                             tt_dtype dtype)
{
    struct tt_conv_geometry geometry = {images, side, side, layer->kernel, layer->stride, layer->kernel / 2};
    int64_t k = layer->in * layer->kernel * layer->kernel, places = tt_conv_pixels(&geometry);
    tt_tensor x = bench_random_tensor(bench, dtype, images * side * side, layer->in);
    tt_tensor w = bench_scaled_tensor(bench, dtype, layer->out, k, 0.02);
    tt_tensor y = bench_random_tensor(bench, dtype, places, layer->out);
    tt_tensor dw = bench_random_tensor(bench, TT_F32, layer->out, k);
    tt_tensor scratch = bench_random_tensor(bench, TT_F32, layer->out, k);
    tt_tensor dx = bench_random_tensor(bench, dtype, images * side * side, layer->in);
    return (struct call){
        .forward = {.geometry = geometry, .x_PC = x, .w_OK = w, .y_QO = y},
        .input = {.geometry = geometry, .dz_QO = y, .w_OK = w, .dx_PC = dx},
        .weight = {.geometry = geometry, .x_PC = x, .dz_QO = y, .dw_OK = dw, .scratch_OK = scratch},
    };
}

int main(int argc, char **argv)
{
    static const char *const passes[] = {[FORWARD] = "forward", [INPUT] = "input", [WEIGHT] = "weight"};
    int64_t pixels = argc > 1 ? atoll(argv[1]) : 800, images = argc > 3 ? atoll(argv[3]) : 1;
    tt_dtype dtype = argc > 2 && strcmp(argv[2], "bf16") == 0 ? TT_BF16 : TT_F32;
    struct tt_device_config config = {.kind = "cpu", .threads = 1};
    bool gpu = argc > 4 && strcmp(argv[4], "cuda") == 0;
    if (gpu) config.kind = "cuda";
    if (argc > 4 && strcmp(argv[4], "panels") == 0) config.tuning.cpu_gemm = TT_TUNING_GEMM_PANELS;
    struct bench bench = {.seconds = 0.2, .gpu = gpu};
    double seconds = 0, work = 0;
    bench_must(tt_device_open(&config, &bench.device));
    bench_must(tt_stream_create(bench.device, &bench.stream));
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        const struct layer *layer = &layers[i];
        int64_t side = pixels;
        for (int level = 0; level < layer->level; level++) side = (side + 1) / 2;
        struct call call = make_call(&bench, layer, images, side, dtype);
        double flops =
            2.0 * (double)tt_conv_pixels(&call.forward.geometry) * (double)tt_tensor_count(call.forward.w_OK);
        for (int pass = FORWARD; pass <= WEIGHT; pass *= 2) {
            if (!(layer->passes & pass)) continue;
            double took = measure(&bench, &call, pass);
            seconds += took * layer->count;
            work += flops * layer->count;
            printf(
                "{\"layer\": \"%s\", \"pass\": \"%s\", \"count\": %d, \"images\": %lld, \"side\": %lld, "
                "\"in\": %lld, "
                "\"out\": %lld, \"kernel\": %lld, \"stride\": %lld, \"seconds\": %.6f, \"gflops\": %.1f}\n",
                layer->name, passes[pass], layer->count, (long long)images, (long long)side,
                (long long)layer->in, (long long)layer->out, (long long)layer->kernel,
                (long long)layer->stride, took, flops / took / 1e9);
            (void)fflush(stdout);
        }
        bench_release(&bench);
    }
    printf("{\"layer\": \"all\", \"pixels\": %lld, \"dtype\": \"%s\", \"images\": %lld, \"seconds\": %.4f, "
           "\"gflops\": "
           "%.1f}\n",
           (long long)pixels, dtype == TT_BF16 ? "bf16" : "f32", (long long)images, seconds,
           work / seconds / 1e9);
    tt_stream_destroy(bench.stream);
    tt_device_close(bench.device);
    return 0;
}
