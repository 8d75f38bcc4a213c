/* Included by the kernels of cpu/winograd*.c, once per instruction set: one-dimensional transforms at the points 0, 1,
 * -1, 1/2, -2 and infinity (winograd.h), and that of tiles of x. No include guard. */

/* x: six places to six points. */
TT_INLINE void TT_PASS(to_points)(const vf d[TT_TILE_X], vf v[TT_TILE_X])
{
    vf d31 = d[3] - d[1], d42 = d[4] - d[2];
    v[0] = d[0] + d[4] - 2.0f * d[2] + 1.5f * d31;
    v[1] = d[4] - d[1] + 0.5f * d[2] + 2.5f * d[3];
    v[2] = d[4] + d[1] - 2.5f * d[2] + 0.5f * d[3];
    v[3] = d42 + 2.0f * d31;
    v[4] = d42 - 0.5f * d31;
    v[5] = d[1] + d[5] - 2.0f * d[3] + 1.5f * d42;
}

/* y: six points to four places. */
TT_INLINE void TT_PASS(to_places)(const vf m[TT_TILE_X], vf y[TT_TILE_Y])
{
    vf even = m[1] + m[2], odd = m[1] - m[2];
    y[0] = m[0] + even + m[3] + m[4];
    y[1] = odd + 0.5f * m[3] - 2.0f * m[4];
    y[2] = even + 0.25f * m[3] + 4.0f * m[4];
    y[3] = odd + 0.125f * m[3] - 8.0f * m[4] + m[5];
}

/* Its transpose: gradients of four places to those of six points. */
TT_INLINE void TT_PASS(from_places)(const vf y[TT_TILE_Y], vf m[TT_TILE_X])
{
    vf even = y[0] + y[2], odd = y[1] + y[3];
    m[0] = y[0];
    m[1] = even + odd;
    m[2] = even - odd;
    m[3] = y[0] + 0.5f * y[1] + 0.25f * y[2] + 0.125f * y[3];
    m[4] = y[0] - 2.0f * y[1] + 4.0f * y[2] - 8.0f * y[3];
    m[5] = y[3];
}

/* Weights: three taps to six points. */
TT_INLINE void TT_PASS(weights_to_points)(const vf g[3], vf u[TT_TILE_X])
{
    vf ends = g[0] + g[2];
    u[0] = g[0];
    u[1] = (ends + g[1]) * (1.0f / 3.0f);
    u[2] = (g[1] - ends) * (1.0f / 3.0f);
    u[3] = (4.0f * g[0] + 2.0f * g[1] + g[2]) * (-4.0f / 15.0f);
    u[4] = (g[0] - 2.0f * g[1] + 4.0f * g[2]) * (1.0f / 15.0f);
    u[5] = g[2];
}

/* Its transpose: gradients of six points to those of three taps. */
TT_INLINE void TT_PASS(weights_from_points)(const vf u[TT_TILE_X], vf g[3])
{
    vf sum = (u[1] + u[2]) * (1.0f / 3.0f), difference = (u[1] - u[2]) * (1.0f / 3.0f);
    vf half = u[3] * (-4.0f / 15.0f), two = u[4] * (1.0f / 15.0f);
    g[0] = u[0] + difference + 4.0f * half + two;
    g[1] = sum + 2.0f * half - 2.0f * two;
    g[2] = difference + half + 4.0f * two + u[5];
}

TT_INLINE void TT_PASS(tile_channels)(const void *const places[TT_TILE_POINTS], bool bf16, int64_t channel,
                                      int64_t left, float *to, int64_t step)
{
    vf rows[TT_TILE_X][TT_TILE_X], v[TT_TILE_X];
    for (int i = 0; i < TT_TILE_X; i++) {
        vf d[TT_TILE_X];
        for (int j = 0; j < TT_TILE_X; j++) d[j] = vload_part(places[i * TT_TILE_X + j], channel, bf16, left);
        TT_PASS(to_points)(d, rows[i]);
    }
    for (int j = 0; j < TT_TILE_X; j++) {
        const vf d[TT_TILE_X] = {rows[0][j], rows[1][j], rows[2][j], rows[3][j], rows[4][j], rows[5][j]};
        TT_PASS(to_points)(d, v);
        for (int i = 0; i < TT_TILE_X; i++) vstore(to + (i * TT_TILE_X + j) * step, 0, false, v[i]);
    }
}

/* Channels channel .. channel + count of tile `index` of x at the 36 points: channel c is at
 * to[point * step + c / group * group_step + c % group], where `group` is a multiple of the vector. Beyond `count` the
 * rest of the last vector is zeros. */
TT_INLINE void TT_PASS(tile_to_points)(const struct tt_tiles *tiles, const tt_tensor *x, int64_t index,
                                       int64_t channel, int64_t count, float *to, int64_t step, int64_t group,
                                       int64_t group_step)
{
    const void *places[TT_TILE_POINTS];
    struct tt_tile_corner corner = tt_tile_corner_of(tiles, index);
    tt_tile_places(tiles, x, corner.image, corner.h - 1, corner.w - 1, TT_TILE_X, channel, places);
    for (int64_t c = 0; c < count; c += TT_VECTOR_LANES) {
        float *at = to + c / group * group_step + c % group;
        if (x->dtype == TT_BF16)
            TT_PASS(tile_channels)(places, true, c, count - c, at, step);
        else
            TT_PASS(tile_channels)(places, false, c, count - c, at, step);
    }
}
