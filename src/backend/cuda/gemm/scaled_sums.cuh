/* Sums of products in E4M3, for fp8.cu and grouped_fp8.cu.
 *
 * Tensor cores keep some 14 bits of a sum of such products, so the error grows with the length of a chain of them.
 * After `chain` steps the sums are rounded to bf16 and kept in shared memory, in the tile's place; what the rounding
 * left out stays in the registers as the beginning of the next chain. The two together are the sum with all its bits.
 *
 * Sums are scaled in registers before LoRA's steps, which are those of bf16 and add to them. */
#ifndef TT_BACKEND_CUDA_GEMM_SCALED_SUMS_CUH
#define TT_BACKEND_CUDA_GEMM_SCALED_SUMS_CUH

#include "backend/cuda/gemm/tiles.cuh"

namespace
{

#if defined(TT_HOPPER)

enum { E4M3_DEPTH = 2 * DEPTH }; /* elements of a stage */

TT_DEVICE int steps_of(int k)
{
    return (k + E4M3_DEPTH - 1) / E4M3_DEPTH;
}

/* A warp group's part of a tile: 64 rows. */
struct product {
    shared &s;
    const int group, thread;
    const uint32_t row; /* in the tile, of the lane's address in stores of sums */
    ring at;
    float sums[128];
    bool has_place; /* the tile's place in shared memory has been written out */
    bool holds;     /* a part of the sums is there */
    bool idle;      /* no row of the tile is its own: it only keeps the pace of the stages */

    TT_DEVICE void release(int slot)
    {
        if (slot >= 0 && thread < CLUSTER) barrier_arrive_at(&s.empty[slot], thread);
    }

    /* Adds the products of `count` stages: E4M3, or bf16 with b of rows along k or along n. */
    template <bool WIDE, int TRANSPOSED> TT_DEVICE void multiply(int count, bool adds)
    {
        constexpr uint32_t b_lead = TRANSPOSED ? 64 * DEPTH * sizeof(bf16) : 16, eight_rows = 8 * 128;
        int before = -1;
        for (int i = 0; i < count; i++, at.next()) {
            uint64_t a = matrix_descriptor(s.a[at.slot] + group * 64 * DEPTH, 16, eight_rows),
                     b = matrix_descriptor(s.b[at.slot], b_lead, eight_rows);
            barrier_wait(&s.full[at.slot], at.phase);
            if (!idle) {
                wgmma_fence();
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    if constexpr (WIDE)
                        wgmma_64x256x32(sums, a + k * 2, b + k * 2, adds || i > 0 || k > 0);
                    else
                        wgmma_64x256x16<TRANSPOSED>(sums, a + k * 2, b + k * (TRANSPOSED ? 128 : 2), 1);
                }
                wgmma_commit();
                wgmma_wait<1>();
            }
            release(before);
            before = at.slot;
        }
        wgmma_wait<0>();
        wgmma_results(sums);
        release(before);
    }

    TT_DEVICE void take_place(int turn)
    {
        if (!has_place) barrier_wait(&s.sums_empty, (turn & 1) ^ 1);
        has_place = true;
    }

    /* Adds what is held to the sums. */
    TT_DEVICE void take_back()
    {
        if (!holds) return;
        holds = false;
#pragma unroll
        for (int i = 0; i < 32; i += 2) add_held(i);
    }

    TT_DEVICE void add_held(int i)
    {
        uint32_t held[4];
        load_matrices(place_of(s.c, row, i + thread % 32 / 16), held);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            sums[4 * i + 2 * j] += low_half(held[j]);
            sums[4 * i + 2 * j + 1] += high_half(held[j]);
        }
    }

    /* Keeps the sums, rounded to bf16, in the tile's place; the rest of them stays. */
    TT_DEVICE void hold()
    {
#pragma unroll
        for (int i = 0; i < 32; i += 2) {
            uint32_t word[4];
            if (holds) add_held(i);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                float &x = sums[4 * i + 2 * j], &y = sums[4 * i + 2 * j + 1];
                word[j] = pack(x, y);
                x -= low_half(word[j]);
                y -= high_half(word[j]);
            }
            store_matrices(place_of(s.c, row, i + thread % 32 / 16), word[0], word[1], word[2], word[3]);
        }
        __syncwarp();
        holds = true;
    }

    /* Multiplies by factors of the columns, of which each thread gives two, and of its two rows. */
    TT_DEVICE void scale(float (&factors)[COLUMNS], float2 columns, float2 rows)
    {
        *reinterpret_cast<float2 *>(&factors[2 * thread]) = columns;
        group_sync(1 + group);
#pragma unroll
        for (int i = 0; i < 32; i++) {
            float2 by = *reinterpret_cast<const float2 *>(&factors[8 * i + 2 * (thread % 4)]);
            sums[4 * i] = sums[4 * i] * by.x * rows.x;
            sums[4 * i + 1] = sums[4 * i + 1] * by.y * rows.x;
            sums[4 * i + 2] = sums[4 * i + 2] * by.x * rows.y;
            sums[4 * i + 3] = sums[4 * i + 3] * by.y * rows.y;
        }
    }
};

#endif

} // namespace

#endif
