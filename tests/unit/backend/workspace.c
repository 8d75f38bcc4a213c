#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "backend/workspace.h"

static struct tt_device *open_device(const char *kind)
{
    struct tt_device *device = NULL;
    assert_int_equal(tt_device_open(&(struct tt_device_config){.kind = kind, .threads = 1}, &device), TT_OK);
    return device;
}

/* The same steps for both kinds of device; returns the peak. */
static size_t run_steps(struct tt_workspace *workspace)
{
    tt_tensor kept, scratch, more, none;
    assert_int_equal(tt_workspace_2d(workspace, "kept", TT_BF16, 3, 100, &kept), TT_OK);
    size_t mark = tt_workspace_mark(workspace);
    assert_int_equal(tt_workspace_1d(workspace, "scratch", TT_F32, 1000, &scratch), TT_OK);
    assert_int_equal(tt_workspace_1d(workspace, "nothing", TT_F32, 0, &none), TT_OK);
    assert_true((char *)scratch.data >= (char *)kept.data + 600);
    assert_int_equal((uintptr_t)kept.data % 256, 0);
    assert_int_equal((uintptr_t)scratch.data % 256, 0);
    assert_int_equal(kept.dims[0], 3);
    assert_int_equal(kept.strides[0], 100);
    assert_true(tt_tensor_is_contiguous(kept));
    tt_workspace_release(workspace, mark);
    assert_int_equal(tt_workspace_1d(workspace, "more", TT_F32, 10, &more), TT_OK);
    assert_ptr_equal(more.data, scratch.data);
    assert_int_equal(tt_workspace_mark(workspace), 768 + 256);
    tt_workspace_release(workspace, 0);
    return tt_workspace_peak(workspace);
}

static void what_the_plan_says_is_enough(void **state)
{
    (void)state;
    struct tt_device *plan = open_device("plan"), *cpu = open_device("cpu");
    struct tt_workspace *planned = NULL, *real = NULL;
    assert_int_equal(tt_workspace_create(plan, 0, &planned), TT_OK);
    size_t peak = run_steps(planned);
    assert_int_equal(peak, 768 + 4096);
    struct tt_memory_use use;
    tt_device_memory(plan, &use);
    assert_int_equal(use.peak[TT_PURPOSE_ACTIVATIONS], peak);
    assert_int_equal(tt_workspace_create(cpu, peak, &real), TT_OK);
    assert_int_equal(run_steps(real), peak);
    tt_device_memory(cpu, &use);
    assert_int_equal(use.peak[TT_PURPOSE_ACTIVATIONS], peak);
    tt_workspace_destroy(planned);
    tt_workspace_destroy(real);
    tt_workspace_destroy(NULL);
    tt_device_memory(plan, &use);
    assert_int_equal(use.total_current, 0);
    tt_device_close(plan);
    tt_device_close(cpu);
}

static void too_small_a_plan_is_named(void **state)
{
    (void)state;
    struct tt_device *cpu = open_device("cpu");
    struct tt_workspace *workspace = NULL;
    tt_tensor tensor;
    assert_int_equal(tt_workspace_create(cpu, 1000, &workspace), TT_OK);
    assert_int_equal(tt_workspace_1d(workspace, "logits", TT_F32, 193, &tensor), TT_ERR_INTERNAL);
    assert_non_null(strstr(tt_error_last()->message, "logits"));
    assert_int_equal(tt_workspace_mark(workspace), 0);
    assert_int_equal(tt_workspace_1d(workspace, "logits", TT_F32, 192, &tensor), TT_OK);
    assert_int_equal(tt_workspace_1d(workspace, "wide", TT_F32, -1, &tensor), TT_ERR_INTERNAL);
    assert_int_equal(tt_workspace_2d(workspace, "wide", TT_F32, INT64_MAX, 8, &tensor), TT_ERR_INTERNAL);
    assert_int_equal(tt_workspace_2d(workspace, "wide", TT_U8, INT64_MAX, 1, &tensor), TT_ERR_INTERNAL);
    assert_int_equal(tt_workspace_2d(workspace, "wide", TT_U8, INT64_MAX, 2, &tensor), TT_ERR_INTERNAL);
    tt_workspace_destroy(workspace);
    tt_device_close(cpu);
}

/* A planned step may need more than any machine has: the plan says so instead of failing. */
static void the_planned_stack_has_no_end(void **state)
{
    (void)state;
    struct tt_device *plan = open_device("plan");
    struct tt_workspace *workspace = NULL;
    struct tt_buffer *buffer = NULL;
    tt_tensor tensor;
    assert_int_equal(tt_workspace_create(plan, 0, &workspace), TT_OK);
    assert_int_equal(tt_buffer_create(plan, 1000, TT_PURPOSE_WEIGHTS, &buffer), TT_OK);
    assert_int_equal(tt_workspace_2d(workspace, "huge", TT_F32, 1 << 20, 1 << 20, &tensor), TT_OK);
    assert_int_equal(tt_workspace_peak(workspace), (size_t)4 << 40);
    /* Its made-up addresses do not run into those of buffers. */
    uintptr_t data = (uintptr_t)tt_buffer_data(buffer), first = (uintptr_t)tensor.data;
    assert_true(data + 1000 <= first || data >= first + ((uintptr_t)4 << 40));
    tt_workspace_destroy(workspace);
    tt_buffer_destroy(buffer);
    tt_device_close(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_plan_says_is_enough),
        cmocka_unit_test(too_small_a_plan_is_named),
        cmocka_unit_test(the_planned_stack_has_no_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
