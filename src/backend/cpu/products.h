/* Products of small matrices of floats where they are, without packing: an element of a, broadcast, times vectors of a
 * row of b. Compiled once per instruction set, like vector_math.h. */
/* The number of rows of c in registers when c is 3, 2, 1 vectors wide: rows times vectors fill 12 of 16
 * registers, 24 of 32 with AVX-512. */
#define ROWS_WIDE_3 (TT_VECTOR_LANES == 16 ? 8 : 4)
#define ROWS_WIDE_2 (TT_VECTOR_LANES == 16 ? 12 : 6)
#define ROWS_WIDE_1 (TT_VECTOR_LANES == 16 ? 16 : 8)

struct TT_PASS(product) {
    float *c;
    int64_t c_row;
    const float *a;
    int64_t a_row, a_step;
    const float *b;
    int64_t b_row;
    int64_t rows, depth;
};
#define product TT_PASS(product)

/* c[i][lanes] (+)= sum over k < depth of a[i * a_row + k * a_step] * b[k][lanes], for `rows` x `vectors` of c. k
 * ascends for every blocking, so a sum does not depend on how often it is stored and continued. */
TT_INLINE void TT_PASS(multiply_block)(const struct product *p, int64_t first_row, int64_t first_lane,
                                       const int rows, const int vectors, const bool add)
{
    float *c = p->c + first_row * p->c_row + first_lane;
    const float *a = p->a + first_row * p->a_row, *b = p->b + first_lane;
    const int64_t a_row = p->a_row, a_step = p->a_step, b_row = p->b_row, depth = p->depth;
    vf sum[16][3];
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 3
        for (int v = 0; v < vectors; v++)
            sum[i][v] = add ? vload(c, i * p->c_row + v * TT_VECTOR_LANES, false) : vsplat(0);
    for (int64_t k = 0; k < depth; k++) {
        vf lanes[3];
#pragma GCC unroll 3
        for (int v = 0; v < vectors; v++) lanes[v] = vload(b, v * TT_VECTOR_LANES, false);
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++) {
            vf element = vsplat(a[i * a_row]);
#pragma GCC unroll 3
            for (int v = 0; v < vectors; v++) sum[i][v] = vmultiply_add(element, lanes[v], sum[i][v]);
        }
        a += a_step;
        b += b_row;
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 3
        for (int v = 0; v < vectors; v++) vstore(c, i * p->c_row + v * TT_VECTOR_LANES, false, sum[i][v]);
}
#define multiply_block TT_PASS(multiply_block)

TT_INLINE void TT_PASS(multiply_columns)(const struct product *p, int64_t first_lane, const int block_rows,
                                         const int vectors, const bool add)
{
    int64_t i = 0;
    for (; i + block_rows <= p->rows; i += block_rows)
        multiply_block(p, i, first_lane, block_rows, vectors, add);
    if (block_rows > 4)
        for (; i + 4 <= p->rows; i += 4) multiply_block(p, i, first_lane, 4, vectors, add);
    for (; i < p->rows; i++) multiply_block(p, i, first_lane, 1, vectors, add);
}
#define multiply_columns TT_PASS(multiply_columns)

TT_INLINE void TT_PASS(multiply_any)(const struct product *p, int64_t vectors, const bool add)
{
    int64_t v = 0;
    for (; v + 3 <= vectors; v += 3) multiply_columns(p, v * TT_VECTOR_LANES, ROWS_WIDE_3, 3, add);
    if (vectors - v == 2) multiply_columns(p, v * TT_VECTOR_LANES, ROWS_WIDE_2, 2, add);
    if (vectors - v == 1) multiply_columns(p, v * TT_VECTOR_LANES, ROWS_WIDE_1, 1, add);
}

static void TT_PASS(multiply)(const struct product *p, int64_t vectors)
{
    TT_PASS(multiply_any)(p, vectors, false);
}
#define multiply TT_PASS(multiply)

static void TT_PASS(multiply_add)(const struct product *p, int64_t vectors)
{
    TT_PASS(multiply_any)(p, vectors, true);
}
#define multiply_add TT_PASS(multiply_add)
