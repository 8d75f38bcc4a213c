/* bf16 x bf16 on the tile unit of Intel's AMX (Intel 64 and IA-32 Architectures Software Developer's Manual,
 * volume 1, chapter 18). A tile register holds 16 rows of 64 bytes. TDPBF16PS adds to 16 x 16 floats the
 * products of 16 x 32 bf16 of a and 16 x 32 of b. b has its k in pairs: row p holds k = 2p and 2p + 1 of sixteen
 * columns, side by side. Four of the eight tiles hold the sums of 32 x 32 elements of c.
 *
 * Panels are bf16 in the order in which tiles are loaded: [k / 32][half of the panel][16 rows of 64 bytes], with
 * k padded with zeros to a multiple of 32. In 32-bit words a tile of b is the transpose of the same tile of a.
 * Rows that are stored across k make a tile of b when two of them are interleaved. */
#if defined(__x86_64__)

#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backend/cpu/gemm/kernel.h"
#include "backend/cpu/gemm/words.h"

enum { SIDE = 32, HALF = TT_WORDS, TILE_BYTES = 1024, ROW_BYTES = 64, BLOCK_K = 1024 };

bool tt_gemm_amx_request(void)
{
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 }; /* ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA */
    unsigned a, b, c, d;
    __asm__("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(7), "c"(0));
    bool has_bf16 = (d >> 22 & 1) != 0, has_tiles = (d >> 24 & 1) != 0;
    return has_bf16 && has_tiles && syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

/* The configuration of all eight tiles: 16 rows of 64 bytes. It is in constant memory, because the compiler does
 * not know that the instruction reads it. */
static const struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config = {
    .palette = 1,
    .row_bytes = {ROW_BYTES, ROW_BYTES, ROW_BYTES, ROW_BYTES, ROW_BYTES, ROW_BYTES, ROW_BYTES, ROW_BYTES},
    .rows = {HALF, HALF, HALF, HALF, HALF, HALF, HALF, HALF},
};

static void enter(void)
{
    _tile_loadconfig(&tile_config);
}

static void leave(void)
{
    _tile_release();
}

/* Stores one tile of sums as sixteen rows of c. */
static void store_tile(const float *sum, float alpha, float beta, float *to, int64_t stride)
{
    for (int i = 0; i < HALF; i++) {
        __m512 result = _mm512_mul_ps(_mm512_set1_ps(alpha), _mm512_load_ps(sum + i * HALF));
        if (beta != 0.0f) {
            result = _mm512_fmadd_ps(_mm512_set1_ps(beta), _mm512_loadu_ps(to + i * stride), result);
        }
        _mm512_storeu_ps(to + i * stride, result);
    }
}

static void multiply(int64_t k, const float *a, const float *b)
{
    const char *a_at = (const char *)a, *b_at = (const char *)b;
    for (int64_t p = 0; p < k; p += SIDE, a_at += 2 * TILE_BYTES, b_at += 2 * TILE_BYTES) {
        _tile_loadd(4, a_at, ROW_BYTES);
        _tile_loadd(6, b_at, ROW_BYTES);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, b_at + TILE_BYTES, ROW_BYTES);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, a_at + TILE_BYTES, ROW_BYTES);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
}

static void tile(const struct tt_gemm_tile *args)
{
    int64_t k = args->k, stride = args->stride;
    const float *a = args->a, *b = args->b;
    float alpha = args->alpha, beta = args->beta, *to = args->to;
    float *below = to + HALF * stride;
    int64_t stride_bytes = stride * (int64_t)sizeof *to;
    bool plain = alpha == 1.0f && (beta == 0.0f || beta == 1.0f); /* no scaling: c itself holds the sums */
    if (plain && beta == 1.0f) {
        _tile_loadd(0, to, stride_bytes);
        _tile_loadd(1, to + HALF, stride_bytes);
        _tile_loadd(2, below, stride_bytes);
        _tile_loadd(3, below + HALF, stride_bytes);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    multiply(k, a, b);
    if (plain) {
        _tile_stored(0, to, stride_bytes);
        _tile_stored(1, to + HALF, stride_bytes);
        _tile_stored(2, below, stride_bytes);
        _tile_stored(3, below + HALF, stride_bytes);
        return;
    }
    _Alignas(64) float sums[4][HALF * HALF];
    _tile_stored(0, sums[0], ROW_BYTES);
    _tile_stored(1, sums[1], ROW_BYTES);
    _tile_stored(2, sums[2], ROW_BYTES);
    _tile_stored(3, sums[3], ROW_BYTES);
    for (int i = 0; i < 4; i++) {
        store_tile(sums[i], alpha, beta, to + i / 2 * HALF * stride + i % 2 * HALF, stride);
    }
}

/* `pairs_down`: the pairs of k go down the rows of a tile (b), not along them (a). */
static void pack(float *to, const struct tt_gemm_source *source, int64_t first, int64_t k_first, int64_t k,
                 bool pairs_down)
{
    const uint16_t *from = source->data;
    char *at = (char *)to;
    for (int64_t p = 0; p < k; p += SIDE) {
        for (int64_t half = first; half < first + SIDE; half += HALF, at += TILE_BYTES) {
            int64_t valid = source->across - half < 0 ? 0 : source->across - half;
            tt_words tile_words;
            if (source->k_contiguous) {
                tt_words_along(tile_words, from + half * source->stride + k_first + p, source->stride, valid,
                               k - p);
            } else {
                tt_words_across(tile_words, from + (k_first + p) * source->stride + half, source->stride,
                                valid, k - p);
            }
            if (source->k_contiguous == pairs_down) tt_words_transpose(tile_words);
            for (int i = 0; i < HALF; i++) _mm512_storeu_si512(at + i * ROW_BYTES, tile_words[i]);
        }
    }
}

static void pack_a(float *to, const struct tt_gemm_source *source, int64_t first, int64_t k_first, int64_t k)
{
    pack(to, source, first, k_first, k, false);
}

static void pack_b(float *to, const struct tt_gemm_source *source, int64_t first, int64_t k_first, int64_t k)
{
    pack(to, source, first, k_first, k, true);
}

static void finish(const struct tt_gemm_target *c, int64_t row, int64_t column, const float *sum,
                   int64_t sum_stride, int64_t rows, int64_t columns, float alpha, float beta)
{
    tt_gemm_kernel_avx512.finish(c, row, column, sum, sum_stride, rows, columns, alpha, beta);
}

const struct tt_gemm_kernel tt_gemm_kernel_amx = {
    .mr = SIDE,
    .nr = SIDE,
    .block_k = BLOCK_K,
    .k_unit = SIDE,
    .panel_dtype = TT_BF16,
    .enter = enter,
    .leave = leave,
    .tile = tile,
    .pack_a = pack_a,
    .pack_b = pack_b,
    .finish = finish,
};

#endif
