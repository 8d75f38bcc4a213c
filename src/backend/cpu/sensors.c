#include "backend/cpu/sensors.h"

#include <stdio.h>

#include "base/thread.h"

static bool read_number(const char *path, double *out)
{
    FILE *file = fopen(path, "re");
    unsigned long long value;
    if (file == NULL) return false;
    bool ok = fscanf(file, "%llu", &value) == 1;
    fclose(file);
    if (ok) *out = (double)value;
    return ok;
}

void tt_cpu_sensors_read(const char *sys, struct tt_device_sensors *out)
{
    char path[200];
    double value, joules = 0, kilohertz = 0, most = 0;
    int packages = 0, clocks = 0;
    for (;; packages++) {
        snprintf(path, sizeof path, "%.100s/class/powercap/intel-rapl:%d/energy_uj", sys, packages);
        if (!read_number(path, &value)) break;
        joules += value * 1e-6;
    }
    for (int cpu = 0, count = tt_cpu_count(); cpu < count; cpu++) {
        snprintf(path, sizeof path, "%.100s/devices/system/cpu/cpu%d/cpufreq/scaling_cur_freq", sys, cpu);
        if (!read_number(path, &value)) continue;
        kilohertz += value;
        clocks++;
        snprintf(path, sizeof path, "%.100s/devices/system/cpu/cpu%d/cpufreq/cpuinfo_max_freq", sys, cpu);
        if (read_number(path, &value) && value > most) most = value;
    }
    if (packages > 0) out->joules = joules;
    if (clocks > 0) out->clock_mhz = kilohertz / clocks * 1e-3;
    if (most > 0) out->clock_max_mhz = most * 1e-3;
}
