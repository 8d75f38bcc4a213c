/* backend/cpu/sensors.h: what a made-up /sys says. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>
#include <cmocka.h>

#include "backend/cpu/sensors.h"
#include "base/file.h"
#include "support/temporary.h"

static void put(const char *root, const char *folder, const char *name, const char *text)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s", root, folder);
    assert_int_equal(tt_dir_create(path), TT_OK);
    snprintf(path, sizeof path, "%s/%s/%s", root, folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void made_up(void **state)
{
    char root[160];
    struct tt_device_sensors sensors = {NAN, NAN, NAN, NAN, NAN};
    (void)state;
    test_temporary_of(root, sizeof root, "sys", (long)getpid(), "");
    tt_cpu_sensors_read(root, &sensors);
    assert_true(isnan(sensors.joules) && isnan(sensors.clock_mhz) && isnan(sensors.clock_max_mhz));
    put(root, "class/powercap/intel-rapl:0", "energy_uj", "3000000\n");
    put(root, "class/powercap/intel-rapl:1", "energy_uj", "500000\n");
    put(root, "class/powercap/intel-rapl:3", "energy_uj", "9000000\n"); /* 2 is missing: no more packages */
    put(root, "devices/system/cpu/cpu0/cpufreq", "scaling_cur_freq", "2400000\n");
    put(root, "devices/system/cpu/cpu0/cpufreq", "cpuinfo_max_freq", "3600000\n");
    tt_cpu_sensors_read(root, &sensors);
    assert_true(sensors.joules == 3.5);
    assert_true(sensors.clock_mhz == 2400.0);
    assert_true(sensors.clock_max_mhz == 3600.0);
    put(root, "class/powercap/intel-rapl:0", "energy_uj", "nonsense");
    sensors.joules = NAN;
    tt_cpu_sensors_read(root, &sensors);
    assert_true(isnan(sensors.joules));
    assert_int_equal(tt_dir_remove(root), TT_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(made_up)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
