/* The cpu device: memory, streams that run at once, settings. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "backend/cpu/cpu_device.h"
#include "backend/cpu/gemm/variants.h"
#include "backend/cpu/sensors.h"
#include "backend/cpu/wait_policy.h"
#include "base/alloc.h"
#include "base/number.h"
#include "base/thread.h"

enum { ALIGNMENT = 256, THREADS_MAX = 1024, MAPPED_MIN = 4 << 20, PAGE_MOST = 64 << 10 };

/* "AMD EPYC 7763 64-Core Processor"; Linux keeps the brand string in /proc/cpuinfo. */
static void read_model_name(char *text, size_t text_bytes)
{
    snprintf(text, text_bytes, "CPU");
    FILE *file = fopen("/proc/cpuinfo", "re");
    if (file == NULL) return;
    char line[256];
    while (fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, "model name", 10) != 0) continue;
        const char *colon = strchr(line, ':');
        if (colon == NULL) continue;
        colon += 1 + strspn(colon + 1, " \t");
        snprintf(text, text_bytes, "%.*s", (int)strcspn(colon, "\n"), colon);
        break;
    }
    fclose(file);
}

static int threads_of(int threads)
{
    if (threads <= 0) threads = tt_cpu_count();
    return threads < THREADS_MAX ? threads : THREADS_MAX;
}

size_t tt_host_scratch_bytes(int threads)
{
    return (size_t)threads_of(threads) * TT_CPU_SCRATCH_BYTES + TT_GEMM_SHARED_FLOATS * sizeof(float);
}

static void cpu_close(struct tt_device *device)
{
    struct tt_cpu *cpu = tt_cpu_of(device);
    if (cpu == NULL) return;
    tt_device_give_back(device, TT_PURPOSE_SCRATCH, device->memory.current[TT_PURPOSE_SCRATCH]);
    tt_gemm_state_destroy(cpu->gemm);
    tt_free(cpu->scratch);
    tt_free(cpu);
    device->impl = NULL;
}

static tt_status cpu_open(struct tt_device *device, const struct tt_device_config *config)
{
    if (tt_wait_policy_watch != NULL) tt_wait_policy_watch();
    tt_status status = TT_OK;
    device->threads = threads_of(config->threads);
    struct tt_cpu *cpu = tt_calloc(1, sizeof *cpu);
    if (cpu == NULL) return TT_ERR_MEMORY;
    device->impl = cpu;
    TT_GO(tt_cpu_detect_isa(&config->tuning, &cpu->isa));
    TT_GO(tt_device_take(device, TT_PURPOSE_SCRATCH, tt_host_scratch_bytes(device->threads)));
    size_t bytes = (size_t)device->threads * TT_CPU_SCRATCH_BYTES;
    cpu->scratch = tt_alloc_aligned(bytes);
    if (cpu->scratch == NULL) TT_GO(TT_ERR_MEMORY);
    tt_cpu_advise_huge(cpu->scratch, bytes);
    TT_GO(tt_gemm_state_create(device, &cpu->gemm));
    char model[96];
    read_model_name(model, sizeof model);
    snprintf(device->name, sizeof device->name, "%.80s, %d thread%s, %s", model, device->threads,
             device->threads == 1 ? "" : "s", tt_cpu_isa_name(cpu->isa));
    return TT_OK;
out:
    cpu_close(device);
    return status;
}

/* Fresh pages, which the kernel fills with zeros when they are first touched, near the processor that touches them:
 * what a run reserves and does not use costs neither time nor memory. NULL with errno set: there are none. */
static void *map_zeros(size_t bytes)
{
    char *range =
        mmap(NULL, bytes + TT_CPU_HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (range == MAP_FAILED) return NULL;
    size_t before = (size_t)(-(uintptr_t)range % TT_CPU_HUGE_PAGE);
    if (before > 0) (void)munmap(range, before);
    (void)munmap(range + before + bytes, TT_CPU_HUGE_PAGE - before);
    tt_cpu_advise_huge(range + before, bytes);
    return range + before;
}

static void *allocate_zeros(size_t bytes)
{
    void *block = NULL;
    errno = posix_memalign(&block, ALIGNMENT, bytes + ALIGNMENT);
    return errno == 0 ? memset(block, 0, bytes) : NULL;
}

/* The bytes of a block that has pages of its own; 0: malloc has it. */
static size_t mapped_bytes(size_t bytes)
{
    return bytes < MAPPED_MIN ? 0 : (bytes + PAGE_MOST - 1) / PAGE_MOST * PAGE_MOST;
}

static tt_status cpu_allocate(struct tt_device *device, size_t bytes, void **data)
{
    (void)device;
    if (bytes > PTRDIFF_MAX - 2 * (size_t)TT_CPU_HUGE_PAGE)
        return tt_fail(TT_ERR_MEMORY, "%zu bytes are more than there can be", bytes);
    size_t mapped = mapped_bytes(bytes);
    void *block = mapped > 0 ? map_zeros(mapped) : allocate_zeros(bytes);
    if (block == NULL) {
        tt_status status = tt_fail(TT_ERR_MEMORY, "cannot allocate %zu bytes of host memory: %s", bytes,
                                   tt_errno_text(errno));
        tt_hint("trimtab plan --device cpu shows what the run needs and what would need less; limits of this "
                "process are its ulimit -v and the machine's overcommit");
        return status;
    }
    *data = block;
    return TT_OK;
}

static void cpu_release(struct tt_device *device, void *data, size_t bytes)
{
    (void)device;
    size_t mapped = mapped_bytes(bytes);
    if (mapped > 0)
        (void)munmap(data, mapped);
    else
        free(data);
}

static tt_status cpu_create(struct tt_device *device, void **impl)
{
    (void)device;
    *impl = NULL;
    return TT_OK;
}

static tt_status cpu_stream_create(struct tt_device *device, enum tt_stream_kind kind, void **impl)
{
    (void)kind;
    return cpu_create(device, impl);
}

static void cpu_destroy(struct tt_device *device, void *impl)
{
    (void)device, (void)impl;
}

/* The calling thread does all work at once, so there is nothing to wait for. */
static tt_status cpu_synchronize(struct tt_stream *stream)
{
    (void)stream;
    return TT_OK;
}

static tt_status cpu_record(struct tt_event *event, struct tt_stream *stream)
{
    (void)event, (void)stream;
    return TT_OK;
}

static tt_status cpu_wait(struct tt_stream *stream, struct tt_event *event)
{
    (void)stream, (void)event;
    return TT_OK;
}

static tt_status cpu_copy(struct tt_stream *stream, void *to, const void *from, size_t bytes, int direction)
{
    (void)stream, (void)direction;
    memmove(to, from, bytes);
    return TT_OK;
}

static tt_status cpu_fill_zero(struct tt_stream *stream, void *data, size_t bytes)
{
    (void)stream;
    memset(data, 0, bytes);
    return TT_OK;
}

static tt_status cpu_keep_panels(struct tt_device *device, void *memory, size_t bytes,
                                 const struct tt_kept_range *ranges, size_t count)
{
    return tt_gemm_state_keep(tt_cpu_of(device)->gemm, memory, bytes, ranges, count);
}

static void cpu_sensors(struct tt_device *device, struct tt_device_sensors *out)
{
    (void)device;
    tt_cpu_sensors_read("/sys", out);
}

const struct tt_device_table tt_cpu_device_table = {
    .kind = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .allocate = cpu_allocate,
    .release = cpu_release,
    .allocate_host = cpu_allocate,
    .release_host = cpu_release,
    .stream_create = cpu_stream_create,
    .stream_destroy = cpu_destroy,
    .stream_synchronize = cpu_synchronize,
    .event_create = cpu_create,
    .event_destroy = cpu_destroy,
    .event_record = cpu_record,
    .stream_wait = cpu_wait,
    .copy = cpu_copy,
    .fill_zero = cpu_fill_zero,
    .sensors = cpu_sensors,
    .keep_panels = cpu_keep_panels,
    .ops = &tt_cpu_op_table,
};
