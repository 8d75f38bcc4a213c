/* Properties of chips, for plans without the chip. Memory is the total of cudaMemGetInfo; rates are those that programs
 * reach on random data under the power cap. H200: measured (docs/performance.md), with a rate of matrix products
 * between the results of one and of two GPUs. All others are not measured: the datasheet's dense bf16 rate and
 * bandwidth times the H200's measured share of its own, 0.68 and 0.88. Networks are estimates, nine tenths of a line:
 * 400 Gbit/s for each GPU of a DGX H100 or H200, 200 of a DGX A100 (their datasheets), 100 for the L40S and unknown
 * chips, 10 for desktops and processors. */
#include <string.h>

#include "backend/device.h"
#include "base/ascii.h"

#define MIB ((size_t)1 << 20)

static const struct tt_chip chips[] = {
    {"cpu", "cpu", 0, 0, 0, 1e12, 2e11, 2e11, 5e10, 5e10, 1.1e9, 5e10, false},
    {"h200", "cuda", 143156 * MIB, 704 * MIB, 512 * MIB, 640e12, 575e12, 450e12, 4.2e12, 360e9, 45e9, 55e9,
     true},
    {"h100", "cuda", 81008 * MIB, 704 * MIB, 512 * MIB, 640e12, 575e12, 450e12, 2.95e12, 360e9, 45e9, 55e9,
     true},
    {"a100-80gb", "cuda", 81050 * MIB, 700 * MIB, 256 * MIB, 230e12, 180e12, 140e12, 1.75e12, 220e9, 22e9,
     24e9, false},
    {"a100-40gb", "cuda", 40338 * MIB, 700 * MIB, 256 * MIB, 230e12, 180e12, 140e12, 1.35e12, 220e9, 22e9,
     24e9, false},
    {"l40s", "cuda", 45458 * MIB, 600 * MIB, 256 * MIB, 245e12, 180e12, 130e12, 0.76e12, 24e9, 11e9, 24e9,
     false},
    {"rtx4090", "cuda", 24081 * MIB, 600 * MIB, 256 * MIB, 150e12, 140e12, 110e12, 0.89e12, 20e9, 1.1e9, 24e9,
     false},
    /* Unknown name: cautious rates, memory from the driver. */
    {"hopper-or-newer", "cuda", 0, 1024 * MIB, 256 * MIB, 245e12, 180e12, 130e12, 0.76e12, 24e9, 11e9, 24e9,
     false},
    {"rtx3090", "cuda", 24124 * MIB, 600 * MIB, 256 * MIB, 65e12, 55e12, 45e12, 0.82e12, 20e9, 1.1e9, 12e9,
     false},
};

const struct tt_chip *tt_chip_find(const char *name)
{
    for (size_t i = 0; i < sizeof chips / sizeof *chips; i++) {
        if (tt_ascii_same(chips[i].name, name)) return &chips[i];
    }
    return NULL;
}

size_t tt_chip_context_bytes(const struct tt_chip *chip)
{
    return chip != NULL ? chip->context_bytes : 1024 * MIB;
}

const char *tt_chip_names(void)
{
    return "h200, h100, a100-80gb, a100-40gb, l40s, rtx4090, rtx3090";
}

const struct tt_chip *tt_chip_of_device_name(const char *device_name)
{
    static const struct {
        const char *part, *chip;
    } known[] = {{"H200", "h200"},           {"H100", "h100"},      {"A100-SXM4-80GB", "a100-80gb"},
                 {"A100 80GB", "a100-80gb"}, {"A100", "a100-40gb"}, {"L40S", "l40s"},
                 {"4090", "rtx4090"},        {"3090", "rtx3090"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strstr(device_name, known[i].part) != NULL) return tt_chip_find(known[i].chip);
    }
    return NULL;
}
