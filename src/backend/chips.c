/* Properties of chips, for plans without the chip. Memory is the total of cudaMemGetInfo; rates are those that programs
 * reach on random data under the power cap. H200: measured (docs/performance.md), with a rate of matrix products
 * between the results of one and of two GPUs. All others are not measured: the datasheet's dense bf16 rate and
 * bandwidth times the H200's measured share of its own, 0.68 and 0.88. Networks are estimates, nine tenths of a line:
 * 400 Gbit/s for each GPU of a DGX H100 or H200, 200 of a DGX A100 (their datasheets), 100 for the L40S and unknown
 * chips, 10 for desktops and processors.
 *
 * The last six were not seen at all. Dense bf16 TFLOP/s and TB/s, with what they rest on:
 * - B200: 2250 and 8; half of HGX B200's 4.5 PFLOP/s with sparsity; 180 GB (NVIDIA's table of HGX B200, which newer
 *   versions have with 7.7 TB/s)
 * - RTX 5090: 209.5 and 1.792; a quarter of 838 with sparsity, because GeForce halves the rate of sums in fp32
 * - L4: 121 and 0.3; half of 242 with sparsity
 * - RTX A5000: 111 and 0.768; the A40's 149.7 by multiprocessors (64 of 84) and clock (1695 of 1740 MHz)
 * - H100 NVL: 835 and 3.9, H200 NVL: 835 and 4.8. The 835 were not checked: no page with NVIDIA's table was at hand.
 * Memory is what a driver usually leaves: 0.975 of GDDR, of which the L4 spends a sixteenth on error correction; 93.00
 * GiB of the H100 NVL, as a program on one reported. Attention has the ratio to products of similar chips above. Links:
 * four fifths of NVLink's one way, 450, 300 and 900 GB/s for H200 NVL, H100 NVL and B200; PCIe for the others.
 *
 * The column of which `mfu` is a share has those dense rates; of the others 989, 312, 362, 165.2 and 71.
 *
 * Several links at once: four H200s, each of which copies from the other three beside compute, 232 GB/s, of 388 from
 * one other GPU (docs/performance.md); other chips with NVLink the same share, those with PCIe no less than from one.
 *
 * FP8 with a scale a row: H200 measured, 1.82 times bf16 in cuBLASLt (1,220 to 670 TFLOP/s sustained); other chips of
 * compute capability 9.0 and 10.0 the same ratio. 0: no such products (8.0, 8.6), or cuBLASLt offers one scale a matrix
 * only (8.9, 12.0). */
#include <string.h>

#include "backend/chips.h"
#include "base/ascii.h"
#include "base/str.h"

#define MIB ((size_t)1 << 20)

static const struct tt_chip chips[] = {
    {"cpu", "cpu", 0, 0, 0, 1e12, 2e11, 2e11, 5e10, 5e10, 5e10, 1.1e9, 5e10, false, 0, 0},
    {"h200", "cuda", 143156 * MIB, 704 * MIB, 512 * MIB, 640e12, 575e12, 450e12, 4.2e12, 360e9, 232e9, 45e9,
     55e9, true, 989e12, 1170e12},
    {"h100", "cuda", 81008 * MIB, 704 * MIB, 512 * MIB, 640e12, 575e12, 450e12, 2.95e12, 360e9, 232e9, 45e9,
     55e9, true, 989e12, 1170e12},
    {"a100-80gb", "cuda", 81050 * MIB, 700 * MIB, 256 * MIB, 230e12, 180e12, 140e12, 1.75e12, 220e9, 142e9,
     22e9, 24e9, false, 312e12, 0},
    {"a100-40gb", "cuda", 40338 * MIB, 700 * MIB, 256 * MIB, 230e12, 180e12, 140e12, 1.35e12, 220e9, 142e9,
     22e9, 24e9, false, 312e12, 0},
    {"l40s", "cuda", 45458 * MIB, 600 * MIB, 256 * MIB, 245e12, 180e12, 130e12, 0.76e12, 24e9, 24e9, 11e9,
     24e9, false, 362e12, 0},
    {"rtx4090", "cuda", 24081 * MIB, 600 * MIB, 256 * MIB, 150e12, 140e12, 110e12, 0.89e12, 20e9, 20e9, 1.1e9,
     24e9, false, 165.2e12, 0},
    /* Unknown name: cautious rates, memory from the driver. */
    {"hopper-or-newer", "cuda", 0, 1024 * MIB, 256 * MIB, 245e12, 180e12, 130e12, 0.76e12, 24e9, 24e9, 11e9,
     24e9, false, 0, 450e12},
    {"rtx3090", "cuda", 24124 * MIB, 600 * MIB, 256 * MIB, 65e12, 55e12, 45e12, 0.82e12, 20e9, 20e9, 1.1e9,
     12e9, false, 71e12, 0},
    {"h200-nvl", "cuda", 143156 * MIB, 704 * MIB, 512 * MIB, 568e12, 510e12, 399e12, 4.2e12, 360e9, 232e9,
     45e9, 55e9, true, 835e12, 1040e12},
    {"h100-nvl", "cuda", 95232 * MIB, 704 * MIB, 512 * MIB, 568e12, 510e12, 399e12, 3.43e12, 240e9, 155e9,
     45e9, 55e9, true, 835e12, 1040e12},
    {"b200", "cuda", 171661 * MIB, 1024 * MIB, 512 * MIB, 1530e12, 900e12, 700e12, 7.0e12, 720e9, 464e9, 45e9,
     55e9, false, 2250e12, 2800e12},
    {"l4", "cuda", 22464 * MIB, 600 * MIB, 256 * MIB, 82e12, 60e12, 43e12, 0.26e12, 12e9, 12e9, 11e9, 12e9,
     false, 121e12, 0},
    {"a5000", "cuda", 23961 * MIB, 600 * MIB, 256 * MIB, 75e12, 63e12, 52e12, 0.67e12, 20e9, 20e9, 11e9, 24e9,
     false, 111e12, 0},
    {"rtx5090", "cuda", 31948 * MIB, 600 * MIB, 256 * MIB, 142e12, 132e12, 104e12, 1.57e12, 40e9, 40e9, 1.1e9,
     48e9, false, 209.5e12, 0},
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
    return "h200, h200-nvl, h100, h100-nvl, b200, a100-80gb, a100-40gb, l40s, l4, a5000, rtx5090, rtx4090, "
           "rtx3090";
}

const struct tt_chip *tt_chip_of_device_name(const char *device_name)
{
    static const struct {
        const char *part, *chip;
    } known[] = {{"H200 NVL", "h200-nvl"},   {"H200", "h200"},      {"H100 NVL", "h100-nvl"},
                 {"H100", "h100"},           {"B200", "b200"},      {"A100-SXM4-80GB", "a100-80gb"},
                 {"A100 80GB", "a100-80gb"}, {"A100", "a100-40gb"}, {"L40S", "l40s"},
                 {"A5000", "a5000"},         {"5090", "rtx5090"},   {"4090", "rtx4090"},
                 {"3090", "rtx3090"}};
    if (tt_ends_with(device_name, " L4")) return tt_chip_find("l4"); /* not L40 */
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strstr(device_name, known[i].part) != NULL) return tt_chip_find(known[i].chip);
    }
    return NULL;
}
