/* cuDNN's graph API from C: a small builder of operation graphs, plans made from them, and their execution.
 *
 * cuDNN is opened at run time (libcudnn.so.9), so the plugin works without it. A graph under construction keeps
 * its first error, and later calls do nothing, so a caller lists all operations and checks once, in
 * tt_cudnn_plan_build. Tensors have unique ids: the caller chooses those of real tensors (1 .. 63), the builder
 * those of virtual ones. All tensors have 4 dimensions {B, H, rows, columns}; strides are in elements. */
#ifndef TT_BACKEND_CUDA_CUDNN_GRAPH_H
#define TT_BACKEND_CUDA_CUDNN_GRAPH_H

#include <cudnn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct tt_cudnn {
    void *library;
    cudnnHandle_t handle;            /* NULL before tt_cudnn_connect; then graphs are planned for `device` */
    size_t version;                  /* 91900 */
    cudnnBackendDescriptor_t device; /* the description of a GPU (tests without one); else NULL */
    size_t (*get_version)(void);
    void (*last_error)(char *text, size_t bytes);
    const char *(*error_string)(cudnnStatus_t status);
    cudnnStatus_t (*create)(cudnnHandle_t *handle);
    cudnnStatus_t (*destroy)(cudnnHandle_t handle);
    cudnnStatus_t (*set_stream)(cudnnHandle_t handle, cudaStream_t stream);
    cudnnStatus_t (*create_descriptor)(cudnnBackendDescriptorType_t type,
                                       cudnnBackendDescriptor_t *descriptor);
    cudnnStatus_t (*destroy_descriptor)(cudnnBackendDescriptor_t descriptor);
    cudnnStatus_t (*finalize)(cudnnBackendDescriptor_t descriptor);
    cudnnStatus_t (*set_attribute)(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                   cudnnBackendAttributeType_t type, int64_t count, const void *values);
    cudnnStatus_t (*get_attribute)(cudnnBackendDescriptor_t const descriptor,
                                   cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                                   int64_t room, int64_t *count, void *values);
    cudnnStatus_t (*execute)(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                             cudnnBackendDescriptor_t pack);
};

/* Loads the library. Fails with TT_ERR_UNSUPPORTED and the loader's message when it is missing or older than
 * 9.18.1. In older releases ragged backward passes gave NaN with head dimension 256, or when sequences did not
 * fill their buffer. */
TT_MUST_USE tt_status tt_cudnn_open(struct tt_cudnn *cudnn);
/* Creates a handle on the current device. */
TT_MUST_USE tt_status tt_cudnn_connect(struct tt_cudnn *cudnn);
void tt_cudnn_close(struct tt_cudnn *cudnn); /* takes a zeroed struct */
/* A copy for another thread, on its current device: the same library with a handle of its own, or the same description
 * of a GPU. unshare comes before `cudnn` is closed. */
TT_MUST_USE tt_status tt_cudnn_share(const struct tt_cudnn *cudnn, struct tt_cudnn *out);
void tt_cudnn_unshare(struct tt_cudnn *cudnn);

enum {
    TT_CUDNN_TENSORS_MAX = 128,
    TT_CUDNN_OPS_MAX = 48,
    TT_CUDNN_DESCRIPTORS_MAX = 192,
    TT_CUDNN_FIRST_VIRTUAL = 64
};

struct tt_cudnn_tensor {
    cudnnDataType_t type;
    int64_t dims[4];
    int64_t strides[4];
    int ragged;        /* id of the tensor of offsets, in elements of this one; 0: none */
    bool by_value;     /* a scalar; execution gets a host pointer */
    int64_t alignment; /* of its address, in bytes; 0: 16 */
};

struct tt_cudnn_graph {
    const struct tt_cudnn *cudnn;
    tt_status status;
    cudnnBackendDescriptor_t descriptors[TT_CUDNN_DESCRIPTORS_MAX]; /* owned */
    int descriptor_count;
    cudnnBackendDescriptor_t ops[TT_CUDNN_OPS_MAX];
    int op_count;
    cudnnBackendDescriptor_t tensors[TT_CUDNN_TENSORS_MAX]; /* by id */
    struct tt_cudnn_tensor shapes[TT_CUDNN_TENSORS_MAX];
    int next_virtual;
};

void tt_cudnn_graph_init(struct tt_cudnn_graph *graph, const struct tt_cudnn *cudnn);
void tt_cudnn_graph_deinit(struct tt_cudnn_graph *graph);

/* Declares a real tensor. Tensors of offsets come before the tensors that use them. */
void tt_cudnn_tensor(struct tt_cudnn_graph *graph, int id, struct tt_cudnn_tensor tensor);
void tt_cudnn_scalar(struct tt_cudnn_graph *graph, int id);                        /* fp32, by value */
int tt_cudnn_virtual(struct tt_cudnn_graph *graph, struct tt_cudnn_tensor tensor); /* -> id */

/* The operations write into `y`, or into a new virtual tensor when y is 0, and return the id of the result. */
/* y = mode(x, b), element-wise in `precision`; b = 0: one operand. A virtual y has x's shape and the type
 * `type`. */
int tt_cudnn_pointwise(struct tt_cudnn_graph *graph, cudnnPointwiseMode_t mode, cudnnDataType_t precision,
                       int x, int b, int y, cudnnDataType_t type);
/* all in fp32 */
int tt_cudnn_float(struct tt_cudnn_graph *graph, cudnnPointwiseMode_t mode, int x, int b, int y);
/* y = t ? x : b, t of booleans. */
int tt_cudnn_select(struct tt_cudnn_graph *graph, int x, int b, int t);
/* i32: the index of each element of x along `axis`. */
int tt_cudnn_index(struct tt_cudnn_graph *graph, int x, int axis);
/* Sum or maximum over the dimensions that are 1 in y; heads may also be reduced to fewer. A virtual y is x with
 * one column. */
int tt_cudnn_reduce(struct tt_cudnn_graph *graph, cudnnReduceTensorOp_t mode, int x, int y);
/* c = a b, fp32 sums. m, n, k: ids of the tensors that give each sequence's real extent; 0: all of it. */
int tt_cudnn_matmul(struct tt_cudnn_graph *graph, int a, int b, int c, int m, int n, int k);
void tt_cudnn_reshape(struct tt_cudnn_graph *graph, int x, int y);

/* A convolution of images {N, C, H, W} with filters {O, C, kernel, kernel}; fp32 sums. Forward: x, w -> y. Gradients:
 * y, w -> x, and x, y -> w. The result is that of the three ids that the pass computes. */
enum tt_cudnn_conv_pass { TT_CUDNN_CONV_FORWARD, TT_CUDNN_CONV_INPUT, TT_CUDNN_CONV_WEIGHT };
struct tt_cudnn_conv {
    enum tt_cudnn_conv_pass pass;
    int64_t stride, padding, padding_end;
    int x, w, y; /* ids */
};
void tt_cudnn_convolution(struct tt_cudnn_graph *graph, const struct tt_cudnn_conv *conv);

struct tt_cudnn_plan {
    const struct tt_cudnn *cudnn;
    cudnnBackendDescriptor_t plan;
    size_t workspace_bytes;
};

/* Builds the first plan that cuDNN's heuristic names and that runs with at most `workspace_limit` bytes. It
 * compiles kernels: 0.3 .. 1 s. */
TT_MUST_USE tt_status tt_cudnn_plan_build(struct tt_cudnn_graph *graph, size_t workspace_limit,
                                          struct tt_cudnn_plan *plan);
/* Writes the plan as JSON for another process; the caller owns the text. */
TT_MUST_USE tt_status tt_cudnn_plan_write(const struct tt_cudnn_plan *plan, char **json, size_t *bytes);
TT_MUST_USE tt_status tt_cudnn_plan_read(const struct tt_cudnn *cudnn, const char *json, size_t bytes,
                                         struct tt_cudnn_plan *plan);
void tt_cudnn_plan_deinit(struct tt_cudnn_plan *plan); /* takes a zeroed struct */

/* Queues the plan: pointers[i] is the address of tensor ids[i]. */
TT_MUST_USE tt_status tt_cudnn_plan_execute(const struct tt_cudnn_plan *plan, cudaStream_t stream,
                                            const int64_t *ids, void *const *pointers, int count,
                                            void *workspace);

#endif
