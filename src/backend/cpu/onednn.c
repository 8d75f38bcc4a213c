#include "backend/cpu/onednn.h"

#if !defined(TT_HAVE_ONEDNN)

tt_status tt_onednn_create(struct tt_device *device, bool forced, struct tt_onednn **out)
{
    (void)device, (void)forced;
    *out = NULL;
    return TT_OK;
}

void tt_onednn_destroy(struct tt_onednn *onednn)
{
    (void)onednn;
}

const char *tt_onednn_name(const struct tt_onednn *onednn, char *text, size_t text_bytes)
{
    (void)onednn, (void)text_bytes;
    text[0] = '\0';
    return text;
}

tt_status tt_gemm_onednn(struct tt_stream *stream, const struct tt_gemm_problem *problem,
                         const char **declined)
{
    (void)stream, (void)problem;
    *declined = "this build has no oneDNN";
    return TT_OK;
}

#else

#include <dnnl.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"

#define VERSION_3 (DNNL_VERSION_MAJOR >= 3)

/* All that a compiled primitive depends on. */
struct key {
    int64_t m, n, k;
    int64_t a_stride, b_stride, c_stride;
    int32_t a_type, b_type, c_type;
    int32_t a_turned, b_turned;
    float alpha, beta;
};

enum { SOURCE, WEIGHTS, TARGET, SCRATCHPAD, OPERANDS };

/* oneDNN chooses how it splits the sums over k by the size of its team, so results of a whole product would
 * depend on the number of threads. So c is cut into blocks by its shape alone, and each block is a product of
 * one thread: the team is ours. */
enum { BLOCK_ROWS = 512, BLOCK_COLUMNS = 256 };

struct primitive {
    struct key key;
    bool used;
    const char *declined; /* why there is none for this shape */
    dnnl_primitive_t primitive;
    dnnl_primitive_desc_t product;
};

struct tt_onednn {
    dnnl_engine_t engine;
    dnnl_stream_t *streams; /* one per thread */
    int stream_count;
    bool has_amx;
    int used_count;
    struct primitive primitives[TT_ONEDNN_PRIMITIVES_MAX * 2]; /* open addressing, at most half full */
};

static tt_status check(dnnl_status_t status, const char *what)
{
    if (status == dnnl_success) return TT_OK;
    return tt_fail(status == dnnl_out_of_memory ? TT_ERR_MEMORY : TT_ERR_DEVICE,
                   "oneDNN cannot %s: status %d", what, (int)status);
}

static void destroy_primitive(struct primitive *primitive)
{
    if (primitive->product != NULL) dnnl_primitive_desc_destroy(primitive->product);
    if (primitive->primitive != NULL) dnnl_primitive_destroy(primitive->primitive);
    memset(primitive, 0, sizeof *primitive);
}

static void forget_all(struct tt_onednn *onednn)
{
    for (size_t i = 0; i < sizeof onednn->primitives / sizeof onednn->primitives[0]; i++) {
        destroy_primitive(&onednn->primitives[i]);
    }
    onednn->used_count = 0;
}

tt_status tt_onednn_create(struct tt_device *device, bool forced, struct tt_onednn **out)
{
    *out = NULL;
    bool has_amx =
        (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_amx) == dnnl_cpu_isa_avx512_core_amx;
    if (!has_amx && !forced) return TT_OK;
    tt_status status = TT_OK;
    struct tt_onednn *onednn = tt_calloc(1, sizeof *onednn);
    if (onednn == NULL) return TT_ERR_MEMORY;
    onednn->has_amx = has_amx;
    onednn->streams = tt_calloc((size_t)device->threads, sizeof *onednn->streams);
    if (onednn->streams == NULL) TT_GO(TT_ERR_MEMORY);
    TT_GO(check(dnnl_engine_create(&onednn->engine, dnnl_cpu, 0), "open its cpu engine"));
    for (; onednn->stream_count < device->threads; onednn->stream_count++) {
        TT_GO(check(dnnl_stream_create(&onednn->streams[onednn->stream_count], onednn->engine,
                                       dnnl_stream_default_flags),
                    "make a stream"));
    }
    *out = onednn;
    return TT_OK;
out:
    tt_onednn_destroy(onednn);
    return status;
}

void tt_onednn_destroy(struct tt_onednn *onednn)
{
    if (onednn == NULL) return;
    forget_all(onednn);
    for (int i = 0; i < onednn->stream_count; i++) dnnl_stream_destroy(onednn->streams[i]);
    if (onednn->engine != NULL) dnnl_engine_destroy(onednn->engine);
    tt_free(onednn->streams);
    tt_free(onednn);
}

const char *tt_onednn_name(const struct tt_onednn *onednn, char *text, size_t text_bytes)
{
    const dnnl_version_t *version = dnnl_version();
    snprintf(text, text_bytes, "oneDNN %d.%d.%d%s", version->major, version->minor, version->patch,
             onednn->has_amx ? " AMX" : "");
    return text;
}

/* The two versions' descriptions. Version 2: plain structs; version 3: objects. */
#if VERSION_3
typedef dnnl_memory_desc_t layout;

static dnnl_status_t describe(layout *out, int64_t rows, int64_t columns, dnnl_data_type_t type,
                              int64_t row_stride, int64_t column_stride)
{
    dnnl_dims_t dims = {rows, columns}, strides = {row_stride, column_stride};
    return dnnl_memory_desc_create_with_strides(out, 2, dims, type, strides);
}

static void undescribe(layout *of)
{
    if (*of != NULL) dnnl_memory_desc_destroy(*of);
}

static dnnl_status_t append_sum(dnnl_post_ops_t post_ops, float scale)
{
    return dnnl_post_ops_append_sum(post_ops, scale, 0, dnnl_data_type_undef);
}

static dnnl_status_t append_factor(dnnl_post_ops_t post_ops, float factor)
{
    return dnnl_post_ops_append_eltwise(post_ops, dnnl_eltwise_linear, factor, 0.0f);
}

static dnnl_status_t describe_product(dnnl_primitive_desc_t *out, dnnl_engine_t engine, layout of[3],
                                      dnnl_primitive_attr_t attributes)
{
    return dnnl_matmul_primitive_desc_create(out, engine, of[SOURCE], of[WEIGHTS], NULL, of[TARGET],
                                             attributes);
}

typedef const_dnnl_memory_desc_t layout_view;
#else
typedef dnnl_memory_desc_t layout;

static dnnl_status_t describe(layout *out, int64_t rows, int64_t columns, dnnl_data_type_t type,
                              int64_t row_stride, int64_t column_stride)
{
    dnnl_dims_t dims = {rows, columns}, strides = {row_stride, column_stride};
    return dnnl_memory_desc_init_by_strides(out, 2, dims, type, strides);
}

static void undescribe(layout *of)
{
    (void)of;
}

static dnnl_status_t append_sum(dnnl_post_ops_t post_ops, float scale)
{
    return dnnl_post_ops_append_sum(post_ops, scale);
}

static dnnl_status_t append_factor(dnnl_post_ops_t post_ops, float factor)
{
    return dnnl_post_ops_append_eltwise(post_ops, 1.0f, dnnl_eltwise_linear, factor, 0.0f);
}

static dnnl_status_t describe_product(dnnl_primitive_desc_t *out, dnnl_engine_t engine, layout of[3],
                                      dnnl_primitive_attr_t attributes)
{
    dnnl_matmul_desc_t product;
    dnnl_status_t status = dnnl_matmul_desc_init(&product, &of[SOURCE], &of[WEIGHTS], NULL, &of[TARGET]);
    if (status != dnnl_success) return status;
    return dnnl_primitive_desc_create(out, &product, attributes, engine, NULL);
}

typedef const dnnl_memory_desc_t *layout_view;
#endif

static dnnl_data_type_t type_of(int32_t dtype)
{
    return dtype == TT_BF16 ? dnnl_bf16 : dnnl_f32;
}

/* A factor and a sum are post-operations: c = beta * c + alpha * (a b), rounded once. Scratch comes from the
 * device, so that nothing is allocated while it runs. */
static dnnl_status_t make_attributes(dnnl_primitive_attr_t *out, const struct key *key)
{
    dnnl_post_ops_t post_ops = NULL;
    dnnl_status_t status = dnnl_primitive_attr_create(out);
    if (status == dnnl_success) {
        status = dnnl_primitive_attr_set_scratchpad_mode(*out, dnnl_scratchpad_mode_user);
    }
    if (status == dnnl_success) status = dnnl_post_ops_create(&post_ops);
    if (status == dnnl_success && key->alpha != 1.0f) status = append_factor(post_ops, key->alpha);
    if (status == dnnl_success && key->beta != 0.0f) status = append_sum(post_ops, key->beta);
    if (status == dnnl_success) status = dnnl_primitive_attr_set_post_ops(*out, post_ops);
    if (post_ops != NULL) dnnl_post_ops_destroy(post_ops);
    return status;
}

static dnnl_status_t compile(dnnl_primitive_desc_t product, struct primitive *primitive)
{
    const char *kernel = "";
    dnnl_primitive_desc_query(product, dnnl_query_impl_info_str, 0, &kernel);
    /* Its other implementations are slower than the own kernels. */
    if (strncmp(kernel, "brg", 3) != 0) {
        primitive->declined = "oneDNN has no batch-reduce kernel for these types and layouts";
        return dnnl_success;
    }
    layout_view scratchpad = dnnl_primitive_desc_query_md(product, dnnl_query_scratchpad_md, 0);
    tt_debug("oneDNN compiled %lldx%lldx%lld: %s, %zu bytes of scratch", (long long)primitive->key.m,
             (long long)primitive->key.n, (long long)primitive->key.k, kernel,
             dnnl_memory_desc_get_size(scratchpad));
    if (dnnl_memory_desc_get_size(scratchpad) > TT_CPU_SCRATCH_BYTES) {
        primitive->declined = "oneDNN needs more scratch than a thread has";
        return dnnl_success;
    }
    return dnnl_primitive_create(&primitive->primitive, product);
}

static tt_status make_primitive(dnnl_engine_t engine, struct primitive *primitive)
{
    const struct key *key = &primitive->key;
    layout of[3];
    memset(of, 0, sizeof of);
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_primitive_desc_t product = NULL;
    dnnl_status_t status = describe(&of[SOURCE], key->m, key->k, type_of(key->a_type),
                                    key->a_turned ? 1 : key->a_stride, key->a_turned ? key->a_stride : 1);
    if (status == dnnl_success) {
        status = describe(&of[WEIGHTS], key->k, key->n, type_of(key->b_type),
                          key->b_turned ? 1 : key->b_stride, key->b_turned ? key->b_stride : 1);
    }
    if (status == dnnl_success) {
        status = describe(&of[TARGET], key->m, key->n, type_of(key->c_type), key->c_stride, 1);
    }
    if (status == dnnl_success) status = make_attributes(&attributes, key);
    if (status == dnnl_success) status = describe_product(&product, engine, of, attributes);
    if (status == dnnl_success) {
        status = compile(product, primitive);
    } else if (status == dnnl_unimplemented || status == dnnl_invalid_arguments) {
        primitive->declined = "oneDNN does not implement these types and layouts here";
        status = dnnl_success;
    }
    primitive->product = product;
    if (attributes != NULL) dnnl_primitive_attr_destroy(attributes);
    for (int i = 0; i < 3; i++) undescribe(&of[i]);
    return check(status, "compile a matrix product");
}

static tt_status find_primitive(struct tt_onednn *onednn, const struct key *key, struct primitive **out)
{
    enum { SLOTS = TT_ONEDNN_PRIMITIVES_MAX * 2 };
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (size_t i = 0; i < sizeof *key; i++) hash = (hash ^ ((const unsigned char *)key)[i]) * 1099511628211u;
    size_t slot = hash % SLOTS;
    for (; onednn->primitives[slot].used; slot = (slot + 1) % SLOTS) {
        if (memcmp(&onednn->primitives[slot].key, key, sizeof *key) == 0) {
            *out = &onednn->primitives[slot];
            return TT_OK;
        }
    }
    struct primitive *primitive = &onednn->primitives[slot];
    primitive->key = *key;
    tt_status status = make_primitive(onednn->engine, primitive);
    if (status != TT_OK) {
        destroy_primitive(primitive);
        return status;
    }
    primitive->used = true;
    onednn->used_count++;
    *out = primitive;
    return TT_OK;
}

/* Rows or columns of the blocks; the last block may be smaller. */
struct cut {
    int64_t total, size, count;
};

static struct cut cut_of(int64_t total, int64_t size)
{
    return (struct cut){.total = total, .size = size, .count = (total + size - 1) / size};
}

static int64_t size_at(const struct cut *cut, int64_t index)
{
    return index + 1 < cut->count ? cut->size : cut->total - index * cut->size;
}

/* The (at most four) shapes of blocks: [last row of blocks][last column of blocks]. */
static tt_status find_blocks(struct tt_onednn *onednn, const struct tt_gemm_problem *problem,
                             const struct cut *rows, const struct cut *columns, struct primitive *found[2][2])
{
    if (onednn->used_count + 4 > TT_ONEDNN_PRIMITIVES_MAX) forget_all(onednn);
    struct key key;
    memset(&key, 0, sizeof key); /* compared as bytes */
    key.k = problem->k;
    key.a_stride = problem->a.stride;
    key.b_stride = problem->b.stride;
    key.c_stride = problem->c.stride;
    key.a_type = (int32_t)problem->a.dtype;
    key.b_type = (int32_t)problem->b.dtype;
    key.c_type = (int32_t)problem->c.dtype;
    key.a_turned = !problem->a.k_contiguous;
    key.b_turned = problem->b.k_contiguous;
    key.alpha = problem->alpha;
    key.beta = problem->beta;
    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < 2; j++) {
            key.m = size_at(rows, i == 0 ? 0 : rows->count - 1);
            key.n = size_at(columns, j == 0 ? 0 : columns->count - 1);
            TT_TRY(find_primitive(onednn, &key, &found[i][j]));
        }
    }
    return TT_OK;
}

static dnnl_status_t run_block(struct tt_onednn *onednn, const struct primitive *primitive, int thread,
                               void *const data[OPERANDS])
{
    static const int names[OPERANDS] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD};
    static const dnnl_query_t queries[OPERANDS] = {dnnl_query_src_md, dnnl_query_weights_md,
                                                   dnnl_query_dst_md, dnnl_query_scratchpad_md};
    dnnl_exec_arg_t arguments[OPERANDS] = {0};
    dnnl_status_t status = dnnl_success;
    int made = 0;
    for (; made < OPERANDS && status == dnnl_success; made++) {
        layout_view view = dnnl_primitive_desc_query_md(primitive->product, queries[made], 0);
        arguments[made].arg = names[made];
        status = dnnl_memory_create(&arguments[made].memory, view, onednn->engine, data[made]);
    }
    if (status == dnnl_success) {
        status = dnnl_primitive_execute(primitive->primitive, onednn->streams[thread], OPERANDS, arguments);
    }
    for (int i = 0; i < made; i++) {
        if (arguments[i].memory != NULL) dnnl_memory_destroy(arguments[i].memory);
    }
    return status;
}

/* The address of element (across, 0) of an operand. */
static void *across_at(const struct tt_gemm_source *source, int64_t across)
{
    int64_t offset = source->k_contiguous ? across * source->stride : across;
    return (char *)source->data + offset * (int64_t)tt_dtype_bytes(source->dtype);
}

static tt_status run_blocks(struct tt_stream *stream, struct tt_onednn *onednn,
                            const struct tt_gemm_problem *problem, const struct cut *rows,
                            const struct cut *columns, struct primitive *found[2][2])
{
    int threads = tt_gemm_threads(stream, problem), failed = dnnl_success;
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int64_t block = 0; block < rows->count * columns->count; block++) {
        int64_t i = block / columns->count, j = block % columns->count;
        int64_t row = i * rows->size, column = j * columns->size;
        int thread = omp_get_thread_num();
        void *data[OPERANDS] = {
            [SOURCE] = across_at(&problem->a, row),
            [WEIGHTS] = across_at(&problem->b, column),
            [TARGET] = (char *)problem->c.data +
                       (row * problem->c.stride + column) * (int64_t)tt_dtype_bytes(problem->c.dtype),
            [SCRATCHPAD] = tt_cpu_scratch(stream, thread),
        };
        const struct primitive *primitive = found[i + 1 == rows->count][j + 1 == columns->count];
        dnnl_status_t status = run_block(onednn, primitive, thread, data);
        if (status != dnnl_success) {
#pragma omp atomic write
            failed = (int)status;
        }
    }
    return check((dnnl_status_t)failed, "run a matrix product");
}

tt_status tt_gemm_onednn(struct tt_stream *stream, const struct tt_gemm_problem *problem,
                         const char **declined)
{
    struct tt_onednn *onednn = tt_gemm_state_of(stream)->onednn;
    if (onednn == NULL) {
        *declined = "the processor has no AMX";
        return TT_OK;
    }
    if (problem->a.dtype != TT_BF16 || problem->b.dtype != TT_BF16) {
        *declined = "the own kernels are as fast unless both operands are bf16";
        return TT_OK;
    }
    struct cut rows = cut_of(problem->m, BLOCK_ROWS), columns = cut_of(problem->n, BLOCK_COLUMNS);
    struct primitive *found[2][2];
    /* A primitive is made for the team that the calling thread would have: one. */
    int before = omp_get_max_threads();
    omp_set_num_threads(1);
    tt_status status = find_blocks(onednn, problem, &rows, &columns, found);
    omp_set_num_threads(before);
    if (status != TT_OK) return status;
    for (int i = 0; i < 4; i++) {
        *declined = found[i / 2][i % 2]->declined;
        if (*declined != NULL) return TT_OK;
    }
    return run_blocks(stream, onednn, problem, &rows, &columns, found);
}

#endif
