/* The choice of algorithms by time, and its file.
 *
 * An idle GPU runs its first 40 ms faster than it can sustain (790 against 690 TFLOP/s on an H200, 2026-11-21),
 * so of candidates timed one after another the first would win. Narrow products are timed round robin, in visits
 * of about 10 ms until each has run 100 ms.
 *
 * Wide products run at the power limit, where the clock depends on the power that a kernel draws. Round robin
 * would run every candidate at the average clock: algorithms chosen this way that were 6 % faster one by one
 * made a step's products 1.8 % faster, most likely because they drew more (11B, two H200s). So the candidates of
 * a wide product run alone, and are timed after the clock has settled. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/cuda/gemm/algorithms.h"
#include "base/file.h"
#include "base/log.h"
#include "base/number.h"

enum { ALGORITHM_BYTES = sizeof(cublasLtMatmulAlgo_t), CHOICES_BYTES_MAX = 4 << 20 };

static const double warm_ms = 300, visit_ms = 10, candidate_ms = 100, settle_ms = 120;
static const double wide_flops = 5e10;
static const double worthwhile_flops = 1e8; /* a smaller product is dominated by its launch */

bool tt_gemm_choice_applies(const struct tt_gemm_key *key)
{
    if (2.0 * (double)key->m * (double)key->n * (double)key->k < worthwhile_flops) return false;
    if (key->a_type == TT_F8_E4M3) return false; /* cuBLASLt offers one algorithm */
    int64_t ab = key->a_type == TT_F32 ? 4 : 8, c = key->c_type == TT_F32 ? 4 : 8; /* elements in 16 bytes */
    return key->a_align >= 4 && key->b_align >= 4 && key->c_align >= 4 && key->lda % ab == 0 &&
           key->ldb % ab == 0 && key->ldc % c == 0;
}

int64_t tt_gemm_rounded(int64_t value)
{
    int64_t step = 1;
    while (value / step >= 16) step *= 2;
    return (value + step - 1) / step * step;
}

static struct tt_gemm_key choice_key(const struct tt_gemm_key *key)
{
    return (struct tt_gemm_key){.m = tt_gemm_rounded(key->m),
                                .n = tt_gemm_rounded(key->n),
                                .k = tt_gemm_rounded(key->k),
                                .a_type = key->a_type,
                                .b_type = key->b_type,
                                .c_type = key->c_type,
                                .trans_a = key->trans_a,
                                .trans_b = key->trans_b,
                                .accumulates = key->accumulates};
}

const cublasLtMatmulAlgo_t *tt_gemm_choice_find(const struct tt_cuda_gemm *gemm,
                                                const struct tt_gemm_key *key)
{
    struct tt_gemm_key wanted = choice_key(key);
    for (int i = 0; i < gemm->choice_count; i++) {
        if (memcmp(&gemm->choices[i].key, &wanted, sizeof wanted) == 0) return &gemm->choices[i].algorithm;
    }
    return NULL;
}

static void format_key(const struct tt_gemm_key *key, char *text, size_t text_bytes)
{
    snprintf(text, text_bytes, "%" PRId64 " %" PRId64 " %" PRId64 " %c%c %s %s %s %d", key->m, key->n, key->k,
             key->trans_a ? 'T' : 'N', key->trans_b ? 'T' : 'N', tt_dtype_name((tt_dtype)key->a_type),
             tt_dtype_name((tt_dtype)key->b_type), tt_dtype_name((tt_dtype)key->c_type), key->accumulates);
}

static bool parse_algorithm(const char *hex, cublasLtMatmulAlgo_t *algorithm)
{
    unsigned char bytes[ALGORITHM_BYTES];
    for (size_t i = 0; i < ALGORITHM_BYTES; i++) {
        unsigned byte;
        if (sscanf(hex + 2 * i, "%2x", &byte) != 1) return false;
        bytes[i] = (unsigned char)byte;
    }
    memcpy(algorithm, bytes, sizeof bytes);
    return true;
}

static bool parse_choice(const char *line, struct tt_gemm_choice *choice)
{
    char a_op, b_op, types[3][8], hex[2 * ALGORITHM_BYTES + 1];
    int accumulates;
    struct tt_gemm_key *key = &choice->key;
    *choice = (struct tt_gemm_choice){0};
    _Static_assert(ALGORITHM_BYTES == 64, "the width in the format");
    if (sscanf(line, "%" SCNd64 " %" SCNd64 " %" SCNd64 " %c%c %7s %7s %7s %d %128[0-9a-f]", &key->m, &key->n,
               &key->k, &a_op, &b_op, types[0], types[1], types[2], &accumulates, hex) != 10 ||
        strlen(hex) != 2 * ALGORITHM_BYTES)
        return false;
    key->trans_a = a_op == 'T';
    key->trans_b = b_op == 'T';
    key->a_type = (uint8_t)tt_dtype_from_name(types[0], strlen(types[0]));
    key->b_type = (uint8_t)tt_dtype_from_name(types[1], strlen(types[1]));
    key->c_type = (uint8_t)tt_dtype_from_name(types[2], strlen(types[2]));
    key->accumulates = accumulates != 0;
    return parse_algorithm(hex, &choice->algorithm);
}

/* Reads the file of choices. Invalid lines and repeated shapes are ignored: a cache never makes a run fail. */
static void read_choices(struct tt_cuda_gemm *gemm)
{
    struct tt_str text = {0};
    char *rest = NULL;
    gemm->choice_count = 0;
    if (gemm->choices_path[0] == '\0' || !tt_path_exists(gemm->choices_path)) return;
    if (tt_file_read(gemm->choices_path, CHOICES_BYTES_MAX, &text) != TT_OK) {
        tt_error_clear();
        tt_str_deinit(&text);
        return;
    }
    for (char *line = strtok_r(text.data, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
        struct tt_gemm_choice choice;
        if (gemm->choice_count == TT_GEMM_CHOICES) break;
        if (!parse_choice(line, &choice) || tt_gemm_choice_find(gemm, &choice.key) != NULL) continue;
        gemm->choices[gemm->choice_count++] = choice;
    }
    tt_str_deinit(&text);
}

void tt_gemm_choices_load(struct tt_cuda_gemm *gemm, const struct tt_device *device)
{
    const struct tt_cuda_device *cuda = (const struct tt_cuda_device *)device->impl;
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME"), *below = "";
    struct cudaDeviceProp properties;
    if (cache == NULL || cache[0] != '/') {
        cache = home;
        below = "/.cache";
    }
    if (cache == NULL || cache[0] != '/' || cudaGetDeviceProperties(&properties, cuda->index) != cudaSuccess)
        return;
    for (char *c = properties.name; *c != '\0'; c++) {
        if (*c == ' ' || *c == '/') *c = '-';
    }
    int length = snprintf(gemm->choices_path, sizeof gemm->choices_path, "%s%s/trimtab/gemm-%s-%d-%zu.txt",
                          cache, below, properties.name, cuda->processors, cublasLtGetVersion());
    if (length < 0 || (size_t)length >= sizeof gemm->choices_path) gemm->choices_path[0] = '\0';
    read_choices(gemm);
}

/* Appends a choice with one write: ranks that choose at the same time do not mix their lines. */
static void keep_choice(struct tt_cuda_gemm *gemm, const struct tt_gemm_choice *choice, double ms,
                        double first_ms)
{
    char folder[sizeof gemm->choices_path], line[512], hex[2 * ALGORITHM_BYTES + 1];
    unsigned char bytes[ALGORITHM_BYTES];
    if (gemm->choice_count < TT_GEMM_CHOICES) gemm->choices[gemm->choice_count++] = *choice;
    if (gemm->choices_path[0] == '\0') return;
    memcpy(folder, gemm->choices_path, sizeof folder);
    *strrchr(folder, '/') = '\0';
    if (tt_dir_create(folder) != TT_OK) {
        tt_error_clear();
        return;
    }
    memcpy(bytes, &choice->algorithm, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++) snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
    format_key(&choice->key, line, sizeof line);
    size_t used = strlen(line);
    tt_snprintf(line + used, sizeof line - used, " %s %.4f ms, first guess %.4f ms\n", hex, ms, first_ms);
    FILE *file = fopen(gemm->choices_path, "a");
    if (file == NULL) return;
    fputs(line, file);
    fclose(file);
}

struct timing {
    struct tt_cuda_gemm *gemm;
    struct tt_stream *stream;
    struct tt_gemm_plan *plan;
    struct tt_gemm_operands operands;
    cudaEvent_t begin, end;
};

/* Runs one candidate `count` times; returns the milliseconds, or a negative number when it does not run. */
static double visit(struct timing *timing, const cublasLtMatmulAlgo_t *algorithm, int count)
{
    cudaStream_t stream = tt_cuda_handle(timing->stream);
    float ms = -1;
    if (cudaEventRecord(timing->begin, stream) != cudaSuccess) return -1;
    for (int i = 0; i < count; i++) {
        if (tt_gemm_plan_run(timing->gemm, timing->stream, timing->plan, algorithm, &timing->operands) !=
            CUBLAS_STATUS_SUCCESS)
            return -1;
    }
    if (cudaEventRecord(timing->end, stream) != cudaSuccess ||
        cudaEventSynchronize(timing->end) != cudaSuccess ||
        cudaEventElapsedTime(&ms, timing->begin, timing->end) != cudaSuccess)
        return -1;
    return ms;
}

/* Mean milliseconds per run, or -1. */
static double mean(struct timing *timing, const cublasLtMatmulAlgo_t *algorithm, double once, double ms)
{
    int repeat = once > 0 ? (int)(ms / once) + 1 : 1;
    double total = visit(timing, algorithm, repeat);
    return total < 0 ? -1 : total / repeat;
}

/* Times each candidate alone, at the clock that settles under it. */
static void time_alone(struct timing *timing, const cublasLtMatmulHeuristicResult_t *candidates, int count,
                       double once, double times[TT_GEMM_CANDIDATES])
{
    for (int i = 0; i < count; i++) {
        times[i] = mean(timing, &candidates[i].algo, once, settle_ms);
        if (times[i] >= 0) times[i] = mean(timing, &candidates[i].algo, once, candidate_ms);
    }
}

static void time_in_turns(struct timing *timing, const cublasLtMatmulHeuristicResult_t *candidates, int count,
                          double once, double times[TT_GEMM_CANDIDATES])
{
    int turns = (int)(candidate_ms / visit_ms);
    for (int i = 0; i < count; i++) times[i] = 0;
    for (int turn = 0; turn < turns; turn++) {
        for (int i = 0; i < count; i++) {
            double ms = times[i] < 0 ? -1 : mean(timing, &candidates[i].algo, once, visit_ms);
            times[i] = ms < 0 ? -1 : times[i] + ms / turns;
        }
    }
}

static bool is_wide(const struct tt_gemm_key *key)
{
    return 2.0 * (double)key->m * (double)key->n * (double)key->k >= wide_flops;
}

/* Returns the fastest; times[i] is the mean of candidate i, infinite when it does not run. */
static int fastest(struct timing *timing, const cublasLtMatmulHeuristicResult_t *candidates, int count,
                   double times[TT_GEMM_CANDIDATES])
{
    double warmed = timing->gemm->warm ? warm_ms * 2 / 3 : 0, once = 0;
    int best = 0;
    while (warmed < warm_ms) {
        double ms = mean(timing, &candidates[0].algo, once, once > 0 ? visit_ms : 0);
        if (ms < 0) break;
        warmed += once > 0 ? fmax(visit_ms, ms) : ms + 0.05;
        once = ms;
    }
    timing->gemm->warm = true;
    (is_wide(&timing->plan->key) ? time_alone : time_in_turns)(timing, candidates, count, once, times);
    for (int i = 0; i < count; i++) {
        if (times[i] <= 0) times[i] = INFINITY;
        if (times[i] < times[best]) best = i;
    }
    return times[best] < times[0] * 0.995 ? best : 0; /* within 0.5 % the heuristics' first candidate stays */
}

tt_status tt_gemm_tune(struct tt_cuda_gemm *gemm, struct tt_stream *stream, struct tt_gemm_plan *plan,
                       const cublasLtMatmulHeuristicResult_t *candidates, int count,
                       const struct tt_gemm_operands *operands)
{
    struct timing timing = {.gemm = gemm, .stream = stream, .plan = plan, .operands = *operands};
    void *instead_of_c = NULL;
    size_t c_bytes = 0;
    double times[TT_GEMM_CANDIDATES];
    read_choices(gemm); /* another rank may have stored this choice meanwhile */
    const cublasLtMatmulAlgo_t *known = tt_gemm_choice_find(gemm, &plan->key);
    if (known != NULL) {
        plan->algorithm = *known;
        return TT_OK;
    }
    if (plan->key.accumulates) { /* timed runs must not add to c: they get another buffer */
        c_bytes = (size_t)(plan->key.ldc * plan->key.n) * tt_dtype_bytes((tt_dtype)plan->key.c_type);
        if (cudaMalloc(&instead_of_c, c_bytes) != cudaSuccess) {
            cudaGetLastError();
            return TT_OK;
        }
        timing.operands.c = instead_of_c;
        timing.operands.addend = instead_of_c;
    }
    if (cudaEventCreate(&timing.begin) == cudaSuccess && cudaEventCreate(&timing.end) == cudaSuccess &&
        (instead_of_c == NULL || cudaMemset(instead_of_c, 0, c_bytes) == cudaSuccess)) {
        int best = fastest(&timing, candidates, count, times);
        struct tt_gemm_choice choice = {.key = choice_key(&plan->key), .algorithm = candidates[best].algo};
        char text[128];
        plan->algorithm = choice.algorithm;
        keep_choice(gemm, &choice, times[best], times[0]);
        format_key(&choice.key, text, sizeof text);
        tt_info("gemm %s: algorithm %d of %d, %.4f ms (first guess %.4f ms)", text, best + 1, count,
                times[best], times[0]);
    }
    if (timing.begin != NULL) cudaEventDestroy(timing.begin);
    if (timing.end != NULL) cudaEventDestroy(timing.end);
    cudaFree(instead_of_c);
    return tt_cuda_check(cudaGetLastError(), stream, "gemm");
}
