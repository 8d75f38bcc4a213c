/* Graphs: what is queued on a stream between begin and end is captured. Marks and spans are not, because their events
 * would then belong to the graph. */
#include "backend/cuda/device_parts.h"

tt_status tt_cuda_graph_begin(struct tt_stream *stream)
{
    TT_TRY(tt_cuda_check(cudaStreamBeginCapture(tt_cuda_handle(stream), cudaStreamCaptureModeThreadLocal),
                         stream, "recording a graph"));
    tt_cuda_of(stream)->records = true;
    return TT_OK;
}

tt_status tt_cuda_graph_end(struct tt_stream *stream, void **impl)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t executable = NULL;
    tt_cuda_of(stream)->records = false;
    TT_TRY(tt_cuda_check(cudaStreamEndCapture(tt_cuda_handle(stream), &graph), stream, "recording a graph"));
    cudaError_t error = cudaGraphInstantiate(&executable, graph, 0);
    (void)cudaGraphDestroy(graph);
    TT_TRY(tt_cuda_check(error, stream, "making a graph"));
    *impl = executable;
    return TT_OK;
}

tt_status tt_cuda_graph_launch(struct tt_stream *stream, void *impl)
{
    return tt_cuda_check(cudaGraphLaunch(impl, tt_cuda_handle(stream)), stream, "launching a graph");
}

void tt_cuda_graph_destroy(struct tt_device *device, void *impl)
{
    if (impl != NULL && !tt_cuda_is_stuck(device)) (void)cudaGraphExecDestroy(impl);
}
