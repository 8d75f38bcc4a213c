/* Ranks on GPUs, as threads of this process: exchanges and sums in order of rank over NCCL, and over the links where
 * the GPUs reach each other. tests/unit/comm/peers.c has the same on CPUs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "support/gpu_comm.h"
#include "support/ranks.h"

enum { COUNT = 300007, ROW_BYTES = 64 << 10, WORLD_MAX = 8 };

static int gpus;

struct plan {
    tt_status (*create)(struct tt_comm *control, struct tt_device *device, struct tt_comm **out);
    bool over_links;
};

struct desk {
    struct tt_device *device;
    struct tt_stream *stream;
    struct tt_comm *comm;
};

static tt_status work(const struct plan *plan, struct tt_comm *control, struct desk *desk)
{
    struct tt_device_config config = {.kind = "cuda", .index = tt_comm_rank(control)};
    TT_TRY(tt_comm_agree(control, tt_device_open(&config, &desk->device)));
    if (plan->over_links) {
        bool shares = false;
        TT_TRY(tt_comm_shares_memory(control, desk->device, true, &shares));
        if (!shares) {
            if (tt_comm_rank(control) == 0) print_message("not over links: these GPUs have none\n");
            return TT_OK;
        }
    }
    TT_TRY(tt_stream_create_copy(desk->device, &desk->stream)); /* as shards have it: sums need no scratch */
    TT_TRY(plan->create(control, desk->device, &desk->comm));
    TT_TRY(test_gpu_comm_exchange(desk->comm, desk->device, desk->stream));
    TT_TRY(test_gpu_comm_ordered(desk->comm, desk->device, desk->stream, COUNT, 0));
    TT_TRY(test_gpu_comm_ordered(desk->comm, desk->device, desk->stream, COUNT, ROW_BYTES));
    TT_TRY(test_gpu_comm_exchange(desk->comm, desk->device, desk->stream));
    return tt_comm_agree(control, TT_OK);
}

static tt_status run_rank(struct tt_comm *control, void *argument)
{
    struct desk desk = {0};
    tt_status status = work(argument, control, &desk);
    if (status != TT_OK) tt_comm_abort(desk.comm != NULL ? desk.comm : control);
    tt_comm_destroy(desk.comm);
    if (desk.stream != NULL) tt_stream_destroy(desk.stream);
    tt_device_close(desk.device);
    return status;
}

static void run(struct plan plan)
{
    for (int world = 2; world <= gpus && world <= WORLD_MAX; world++) test_ranks(world, run_rank, &plan);
}

static void over_nccl(void **state)
{
    (void)state;
    run((struct plan){.create = tt_comm_create_nccl});
}

static void over_links(void **state)
{
    (void)state;
    run((struct plan){.create = tt_comm_create_peers, .over_links = true});
}

int main(void)
{
    char reason[512] = "the driver sees none";
    const char *required = getenv("TT_REQUIRE");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(over_links),
        cmocka_unit_test(over_nccl),
    };
    gpus = tt_cuda_device_count(reason, sizeof reason);
    if (gpus == 0) {
        bool must = required != NULL && strstr(required, "gpu") != NULL;
        printf("%s: there is no GPU: %s\n", must ? "TT_REQUIRE is gpu" : "skipped", reason);
        return must ? 1 : 77;
    }
    if (gpus == 1) {
        printf("skipped: there is one GPU, and ranks need one each\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
