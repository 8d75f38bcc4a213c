#include "backend/cuda/cudnn/graph.h"

#include <dlfcn.h>
#include <string.h>

#include "base/alloc.h"

enum { VERSION_MIN = 91801, CONFIGS_MAX = 8 };

static const struct {
    const char *name;
    size_t offset;
} symbols[] = {
    {"cudnnGetVersion", offsetof(struct tt_cudnn, get_version)},
    {"cudnnGetLastErrorString", offsetof(struct tt_cudnn, last_error)},
    {"cudnnGetErrorString", offsetof(struct tt_cudnn, error_string)},
    {"cudnnCreate", offsetof(struct tt_cudnn, create)},
    {"cudnnDestroy", offsetof(struct tt_cudnn, destroy)},
    {"cudnnSetStream", offsetof(struct tt_cudnn, set_stream)},
    {"cudnnBackendCreateDescriptor", offsetof(struct tt_cudnn, create_descriptor)},
    {"cudnnBackendDestroyDescriptor", offsetof(struct tt_cudnn, destroy_descriptor)},
    {"cudnnBackendFinalize", offsetof(struct tt_cudnn, finalize)},
    {"cudnnBackendSetAttribute", offsetof(struct tt_cudnn, set_attribute)},
    {"cudnnBackendGetAttribute", offsetof(struct tt_cudnn, get_attribute)},
    {"cudnnBackendExecute", offsetof(struct tt_cudnn, execute)},
};

tt_status tt_cudnn_open(struct tt_cudnn *cudnn)
{
    *cudnn = (struct tt_cudnn){0};
    void *library = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        const char *why = dlerror();
        return tt_fail(TT_ERR_UNSUPPORTED, "%s", why != NULL ? why : "libcudnn.so.9 cannot be opened");
    }
    cudnn->library = library;
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *symbol = dlsym(library, symbols[i].name);
        if (symbol == NULL) {
            tt_cudnn_close(cudnn);
            return tt_fail(TT_ERR_UNSUPPORTED, "libcudnn.so.9 has no %s", symbols[i].name);
        }
        memcpy((char *)cudnn + symbols[i].offset, &symbol, sizeof symbol);
    }
    size_t version = cudnn->get_version();
    if (version < VERSION_MIN) {
        tt_cudnn_close(cudnn);
        return tt_fail(TT_ERR_UNSUPPORTED, "cuDNN %zu.%zu.%zu is older than 9.18.1", version / 10000,
                       version / 100 % 100, version % 100);
    }
    cudnn->version = version;
    return TT_OK;
}

/* cuDNN's own message is empty for some refusals; the status always has a text. */
static tt_status complain(const struct tt_cudnn *cudnn, cudnnStatus_t status, const char *what)
{
    char words[400] = "";
    cudnn->last_error(words, sizeof words);
    words[sizeof words - 1] = '\0';
    tt_status kind = status >= CUDNN_STATUS_NOT_SUPPORTED && status < CUDNN_STATUS_INTERNAL_ERROR
                         ? TT_ERR_UNSUPPORTED
                         : TT_ERR_DEVICE;
    return tt_fail(kind, "cuDNN %s: %s%s%s", what, cudnn->error_string(status), words[0] != '\0' ? ": " : "",
                   words);
}

tt_status tt_cudnn_connect(struct tt_cudnn *cudnn)
{
    cudnnStatus_t status = cudnn->create(&cudnn->handle);
    if (status == CUDNN_STATUS_SUCCESS) return TT_OK;
    cudnn->handle = NULL;
    return complain(cudnn, status, "handle");
}

tt_status tt_cudnn_share(const struct tt_cudnn *cudnn, struct tt_cudnn *out)
{
    *out = *cudnn;
    return cudnn->handle != NULL ? tt_cudnn_connect(out) : TT_OK;
}

void tt_cudnn_unshare(struct tt_cudnn *cudnn)
{
    if (cudnn->handle != NULL) cudnn->destroy(cudnn->handle);
    *cudnn = (struct tt_cudnn){0};
}

void tt_cudnn_close(struct tt_cudnn *cudnn)
{
    if (cudnn->library == NULL) return;
    if (cudnn->device != NULL) cudnn->destroy_descriptor(cudnn->device);
    if (cudnn->handle != NULL) cudnn->destroy(cudnn->handle);
    dlclose(cudnn->library);
    *cudnn = (struct tt_cudnn){0};
}

void tt_cudnn_graph_init(struct tt_cudnn_graph *graph, const struct tt_cudnn *cudnn)
{
    memset(graph, 0, sizeof *graph);
    graph->cudnn = cudnn;
    graph->next_virtual = TT_CUDNN_FIRST_VIRTUAL;
}

void tt_cudnn_graph_deinit(struct tt_cudnn_graph *graph)
{
    for (int i = graph->descriptor_count - 1; i >= 0; i--) {
        graph->cudnn->destroy_descriptor(graph->descriptors[i]);
    }
    graph->descriptor_count = 0;
}

struct attribute {
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t count; /* 0: the attribute is left out */
    const void *values;
};

/* Returns a finalized descriptor with these attributes, which the graph destroys; NULL once the graph has
 * failed. */
static cudnnBackendDescriptor_t make(struct tt_cudnn_graph *graph, const char *what,
                                     cudnnBackendDescriptorType_t type, const struct attribute *attributes,
                                     int count)
{
    const struct tt_cudnn *cudnn = graph->cudnn;
    if (graph->status != TT_OK) return NULL;
    if (graph->descriptor_count == TT_CUDNN_DESCRIPTORS_MAX) {
        graph->status =
            tt_fail(TT_ERR_INTERNAL, "a cuDNN graph of more than %d descriptors", TT_CUDNN_DESCRIPTORS_MAX);
        return NULL;
    }
    cudnnBackendDescriptor_t descriptor = NULL;
    cudnnStatus_t status = cudnn->create_descriptor(type, &descriptor);
    if (status == CUDNN_STATUS_SUCCESS) graph->descriptors[graph->descriptor_count++] = descriptor;
    for (int i = 0; i < count && status == CUDNN_STATUS_SUCCESS; i++) {
        const struct attribute *a = &attributes[i];
        if (a->count > 0) status = cudnn->set_attribute(descriptor, a->name, a->type, a->count, a->values);
    }
    if (status == CUDNN_STATUS_SUCCESS) status = cudnn->finalize(descriptor);
    if (status == CUDNN_STATUS_SUCCESS) return descriptor;
    graph->status = complain(cudnn, status, what);
    return NULL;
}

#define MAKE(graph, what, type, ...)                                                                         \
    make(graph, what, type, (const struct attribute[]){__VA_ARGS__},                                         \
         (int)(sizeof((const struct attribute[]){__VA_ARGS__}) / sizeof(struct attribute)))

static void push_op(struct tt_cudnn_graph *graph, cudnnBackendDescriptor_t op)
{
    if (graph->status != TT_OK) return;
    if (graph->op_count == TT_CUDNN_OPS_MAX) {
        graph->status =
            tt_fail(TT_ERR_INTERNAL, "a cuDNN graph of more than %d operations", TT_CUDNN_OPS_MAX);
        return;
    }
    graph->ops[graph->op_count++] = op;
}

static void put_tensor(struct tt_cudnn_graph *graph, int id, struct tt_cudnn_tensor tensor, bool is_virtual)
{
    if (graph->status != TT_OK) return;
    if (id <= 0 || id >= TT_CUDNN_TENSORS_MAX) {
        graph->status = tt_fail(TT_ERR_INTERNAL, "a cuDNN graph with tensor %d", id);
        return;
    }
    int64_t unique = id, alignment = tensor.alignment > 0 ? tensor.alignment : 16;
    cudnnBackendDescriptor_t offsets = tensor.ragged != 0 ? graph->tensors[tensor.ragged] : NULL;
    graph->shapes[id] = tensor;
    graph->tensors[id] = MAKE(
        graph, "tensor", CUDNN_BACKEND_TENSOR_DESCRIPTOR,
        {CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &unique},
        {CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &tensor.type},
        {CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, tensor.dims},
        {CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, tensor.strides},
        {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment},
        {CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, is_virtual, &is_virtual},
        {CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, tensor.by_value, &tensor.by_value},
        {CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, offsets != NULL, &offsets});
}

void tt_cudnn_tensor(struct tt_cudnn_graph *graph, int id, struct tt_cudnn_tensor tensor)
{
    put_tensor(graph, id, tensor, false);
}

void tt_cudnn_scalar(struct tt_cudnn_graph *graph, int id)
{
    tt_cudnn_tensor(
        graph, id,
        (struct tt_cudnn_tensor){
            .type = CUDNN_DATA_FLOAT, .dims = {1, 1, 1, 1}, .strides = {1, 1, 1, 1}, .by_value = true});
}

int tt_cudnn_virtual(struct tt_cudnn_graph *graph, struct tt_cudnn_tensor tensor)
{
    int id = graph->next_virtual++;
    put_tensor(graph, id, tensor, true);
    return id;
}

/* A virtual tensor with x's shape. */
static int virtual_like(struct tt_cudnn_graph *graph, int x, cudnnDataType_t type)
{
    struct tt_cudnn_tensor tensor = graph->shapes[x];
    tensor.type = type;
    tensor.ragged = 0;
    tensor.by_value = false;
    tensor.alignment = 0;
    return tt_cudnn_virtual(graph, tensor);
}

static int pointwise(struct tt_cudnn_graph *graph, cudnnPointwiseMode_t mode, cudnnDataType_t precision,
                     int64_t axis, int x, int b, int t, int y)
{
    if (graph->status != TT_OK) return y;
    cudnnBackendDescriptor_t how = MAKE(graph, "pointwise mode", CUDNN_BACKEND_POINTWISE_DESCRIPTOR,
                                        {CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode},
                                        {CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &precision},
                                        {CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, axis >= 0, &axis});
    cudnnBackendDescriptor_t *tensors = graph->tensors;
    push_op(graph,
            MAKE(graph, "pointwise operation", CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
                 {CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &how},
                 {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &tensors[x]},
                 {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &tensors[y]},
                 {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, b > 0, &tensors[b]},
                 {CUDNN_ATTR_OPERATION_POINTWISE_TDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, t > 0, &tensors[t]}));
    return y;
}

int tt_cudnn_pointwise(struct tt_cudnn_graph *graph, cudnnPointwiseMode_t mode, cudnnDataType_t precision,
                       int x, int b, int y, cudnnDataType_t type)
{
    if (y == 0) y = virtual_like(graph, x, type);
    return pointwise(graph, mode, precision, -1, x, b, 0, y);
}

int tt_cudnn_float(struct tt_cudnn_graph *graph, cudnnPointwiseMode_t mode, int x, int b, int y)
{
    return tt_cudnn_pointwise(graph, mode, CUDNN_DATA_FLOAT, x, b, y, CUDNN_DATA_FLOAT);
}

int tt_cudnn_select(struct tt_cudnn_graph *graph, int x, int b, int t)
{
    int y = virtual_like(graph, x, CUDNN_DATA_FLOAT);
    return pointwise(graph, CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, -1, x, b, t, y);
}

int tt_cudnn_index(struct tt_cudnn_graph *graph, int x, int axis)
{
    int y = virtual_like(graph, x, CUDNN_DATA_INT32);
    return pointwise(graph, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, axis, x, 0, 0, y);
}

int tt_cudnn_reduce(struct tt_cudnn_graph *graph, cudnnReduceTensorOp_t mode, int x, int y)
{
    if (graph->status != TT_OK) return y;
    if (y == 0) {
        struct tt_cudnn_tensor tensor = graph->shapes[x];
        int64_t rows = tensor.dims[2], heads = tensor.dims[1];
        tensor = (struct tt_cudnn_tensor){.type = CUDNN_DATA_FLOAT,
                                          .dims = {tensor.dims[0], heads, rows, 1},
                                          .strides = {heads * rows, rows, 1, 1}};
        y = tt_cudnn_virtual(graph, tensor);
    }
    cudnnDataType_t precision = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t how =
        MAKE(graph, "reduction mode", CUDNN_BACKEND_REDUCTION_DESCRIPTOR,
             {CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &mode},
             {CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &precision});
    push_op(
        graph,
        MAKE(graph, "reduction", CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR,
             {CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &how},
             {CUDNN_ATTR_OPERATION_REDUCTION_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph->tensors[x]},
             {CUDNN_ATTR_OPERATION_REDUCTION_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph->tensors[y]}));
    return y;
}

int tt_cudnn_matmul(struct tt_cudnn_graph *graph, int a, int b, int c, int m, int n, int k)
{
    cudnnDataType_t precision = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t *tensors = graph->tensors;
    cudnnBackendDescriptor_t how = MAKE(graph, "matmul type", CUDNN_BACKEND_MATMUL_DESCRIPTOR,
                                        {CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &precision});
    push_op(graph, MAKE(graph, "matmul", CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
                        {CUDNN_ATTR_OPERATION_MATMUL_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &how},
                        {CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &tensors[a]},
                        {CUDNN_ATTR_OPERATION_MATMUL_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &tensors[b]},
                        {CUDNN_ATTR_OPERATION_MATMUL_CDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &tensors[c]},
                        {CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                         m > 0, &tensors[m]},
                        {CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                         n > 0, &tensors[n]},
                        {CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                         k > 0, &tensors[k]}));
    return c;
}

void tt_cudnn_reshape(struct tt_cudnn_graph *graph, int x, int y)
{
    push_op(graph,
            MAKE(graph, "reshape", CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR,
                 {CUDNN_ATTR_OPERATION_RESHAPE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph->tensors[x]},
                 {CUDNN_ATTR_OPERATION_RESHAPE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph->tensors[y]}));
}

void tt_cudnn_convolution(struct tt_cudnn_graph *graph, const struct tt_cudnn_conv *conv)
{
    static const struct {
        cudnnBackendDescriptorType_t type;
        cudnnBackendAttributeName_t desc, x, w, y, alpha, beta;
    } passes[] = {
        [TT_CUDNN_CONV_FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
        [TT_CUDNN_CONV_INPUT] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
        [TT_CUDNN_CONV_WEIGHT] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
    };
    const float one = 1.0f, zero = 0.0f;
    const int64_t spatial = 2, ones[2] = {1, 1}, strides[2] = {conv->stride, conv->stride};
    const int64_t paddings[2] = {conv->padding, conv->padding},
                  ends[2] = {conv->padding_end, conv->padding_end};
    cudnnDataType_t precision = CUDNN_DATA_FLOAT;
    cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    cudnnBackendDescriptor_t *tensors = graph->tensors;
    cudnnBackendDescriptor_t how =
        MAKE(graph, "convolution type", CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR,
             {CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &precision},
             {CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode},
             {CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, ones},
             {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, strides},
             {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, paddings},
             {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, ends},
             {CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &spatial});
    push_op(graph, MAKE(graph, "convolution", passes[conv->pass].type,
                        {passes[conv->pass].desc, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &how},
                        {passes[conv->pass].x, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &tensors[conv->x]},
                        {passes[conv->pass].w, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &tensors[conv->w]},
                        {passes[conv->pass].y, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &tensors[conv->y]},
                        {passes[conv->pass].alpha, CUDNN_TYPE_FLOAT, 1, &one},
                        {passes[conv->pass].beta, CUDNN_TYPE_FLOAT, 1, &zero}));
}

/* Builds a plan from one engine configuration, or from JSON when `config` is NULL. Records no error on failure:
 * the caller may try others. */
static cudnnStatus_t finish_plan(const struct tt_cudnn *cudnn, cudnnBackendDescriptor_t config,
                                 const char *json, size_t bytes, struct tt_cudnn_plan *plan)
{
    cudnnBackendDescriptor_t descriptor = NULL;
    cudnnStatus_t status = cudnn->create_descriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &descriptor);
    if (status != CUDNN_STATUS_SUCCESS) return status;
    if (cudnn->handle != NULL) {
        status = cudnn->set_attribute(descriptor, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1,
                                      &cudnn->handle);
    } else {
        status = cudnn->set_attribute(descriptor, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
                                      CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &cudnn->device);
    }
    if (status == CUDNN_STATUS_SUCCESS) {
        status = config != NULL
                     ? cudnn->set_attribute(descriptor, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                            CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config)
                     : cudnn->set_attribute(descriptor, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                            CUDNN_TYPE_CHAR, (int64_t)bytes, json);
    }
    if (status == CUDNN_STATUS_SUCCESS) status = cudnn->finalize(descriptor);
    int64_t workspace = 0, count = 0;
    if (status == CUDNN_STATUS_SUCCESS) {
        status = cudnn->get_attribute(descriptor, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64,
                                      1, &count, &workspace);
    }
    if (status != CUDNN_STATUS_SUCCESS) {
        cudnn->destroy_descriptor(descriptor);
        return status;
    }
    *plan = (struct tt_cudnn_plan){
        .cudnn = cudnn, .plan = descriptor, .workspace_bytes = workspace > 0 ? (size_t)workspace : 0};
    return status;
}

/* Gets the engine configurations that the heuristic names for the graph, best first. For a graph that no engine
 * supports the number is 0. The library gives no reason; CUDNN_LOGLEVEL_DBG=2 shows it. */
static int query(struct tt_cudnn_graph *graph, cudnnBackendDescriptor_t configs[CONFIGS_MAX])
{
    const struct tt_cudnn *cudnn = graph->cudnn;
    bool has_handle = cudnn->handle != NULL;
    cudnnBackendDescriptor_t opgraph =
        MAKE(graph, "operation graph", CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR,
             {CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, graph->op_count, graph->ops},
             {CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, has_handle, &cudnn->handle});
    cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    cudnnBackendDescriptor_t heuristic =
        MAKE(graph, "heuristic", CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR,
             {CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &opgraph},
             {CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode},
             {CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, !has_handle, &cudnn->device});
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    for (int i = 0; i < CONFIGS_MAX && graph->status == TT_OK; i++) {
        status = cudnn->create_descriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &configs[i]);
        if (status != CUDNN_STATUS_SUCCESS) break;
        graph->descriptors[graph->descriptor_count++] = configs[i];
    }
    int64_t count = 0;
    if (graph->status == TT_OK && status == CUDNN_STATUS_SUCCESS) {
        status = cudnn->get_attribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                      CONFIGS_MAX, &count, configs);
    }
    if (graph->status == TT_OK && status != CUDNN_STATUS_SUCCESS) {
        graph->status = complain(cudnn, status, "heuristic");
    }
    return graph->status == TT_OK ? (int)count : 0;
}

tt_status tt_cudnn_plan_build(struct tt_cudnn_graph *graph, size_t workspace_limit,
                              struct tt_cudnn_plan *plan)
{
    const struct tt_cudnn *cudnn = graph->cudnn;
    cudnnBackendDescriptor_t configs[CONFIGS_MAX] = {0};
    if (graph->descriptor_count + CONFIGS_MAX + 2 > TT_CUDNN_DESCRIPTORS_MAX) {
        return tt_fail(TT_ERR_INTERNAL, "a cuDNN graph of %d descriptors", graph->descriptor_count);
    }
    int count = graph->status == TT_OK ? query(graph, configs) : 0;
    if (graph->status != TT_OK) return graph->status;
    if (count == 0) return tt_fail(TT_ERR_UNSUPPORTED, "cuDNN has no engine for this graph");
    cudnnStatus_t last = CUDNN_STATUS_SUCCESS;
    size_t least = SIZE_MAX;
    for (int i = 0; i < count; i++) {
        cudnnStatus_t status = finish_plan(cudnn, configs[i], NULL, 0, plan);
        if (status != CUDNN_STATUS_SUCCESS) {
            last = status;
            continue;
        }
        if (plan->workspace_bytes <= workspace_limit) return TT_OK;
        if (plan->workspace_bytes < least) least = plan->workspace_bytes;
        tt_cudnn_plan_deinit(plan);
    }
    if (least == SIZE_MAX) return complain(cudnn, last, "plan");
    return tt_fail(TT_ERR_UNSUPPORTED, "cuDNN's plan wants %zu bytes of workspace, %zu are there", least,
                   workspace_limit);
}

tt_status tt_cudnn_plan_write(const struct tt_cudnn_plan *plan, char **json, size_t *bytes)
{
    const struct tt_cudnn *cudnn = plan->cudnn;
    int64_t count = 0;
    cudnnStatus_t status = cudnn->get_attribute(plan->plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                                CUDNN_TYPE_CHAR, 0, &count, NULL);
    if (status != CUDNN_STATUS_SUCCESS || count <= 0) return complain(cudnn, status, "size of a plan");
    char *text = tt_calloc((size_t)count + 1, 1);
    if (text == NULL) return TT_ERR_MEMORY;
    status = cudnn->get_attribute(plan->plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                  count, &count, text);
    if (status != CUDNN_STATUS_SUCCESS) {
        tt_free(text);
        return complain(cudnn, status, "text of a plan");
    }
    *json = text;
    *bytes = strlen(text);
    return TT_OK;
}

tt_status tt_cudnn_plan_read(const struct tt_cudnn *cudnn, const char *json, size_t bytes,
                             struct tt_cudnn_plan *plan)
{
    cudnnStatus_t status = finish_plan(cudnn, NULL, json, bytes, plan);
    return status == CUDNN_STATUS_SUCCESS ? TT_OK : complain(cudnn, status, "stored plan");
}

void tt_cudnn_plan_deinit(struct tt_cudnn_plan *plan)
{
    if (plan->plan != NULL) plan->cudnn->destroy_descriptor(plan->plan);
    *plan = (struct tt_cudnn_plan){0};
}

tt_status tt_cudnn_plan_execute(const struct tt_cudnn_plan *plan, cudaStream_t stream, const int64_t *ids,
                                void *const *pointers, int count, void *workspace)
{
    const struct tt_cudnn *cudnn = plan->cudnn;
    cudnnBackendDescriptor_t pack = NULL;
    const char *what = "stream";
    cudnnStatus_t status = cudnn->set_stream(cudnn->handle, stream);
    if (status != CUDNN_STATUS_SUCCESS) goto out;
    what = "variant pack";
    status = cudnn->create_descriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
    if (status != CUDNN_STATUS_SUCCESS) goto out;
    status = cudnn->set_attribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids);
    if (status != CUDNN_STATUS_SUCCESS) goto out;
    status = cudnn->set_attribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count,
                                  pointers);
    if (status != CUDNN_STATUS_SUCCESS) goto out;
    status =
        cudnn->set_attribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    if (status != CUDNN_STATUS_SUCCESS) goto out;
    status = cudnn->finalize(pack);
    if (status != CUDNN_STATUS_SUCCESS) goto out;
    what = "execution";
    status = cudnn->execute(cudnn->handle, plan->plan, pack);
out:
    if (pack != NULL) cudnn->destroy_descriptor(pack);
    return status == CUDNN_STATUS_SUCCESS ? TT_OK : complain(cudnn, status, what);
}
