/* Energy and clock of the processors, as Linux shows them to processes with the right to read them (RAPL is often
 * root's). */
#ifndef TT_BACKEND_CPU_SENSORS_H
#define TT_BACKEND_CPU_SENSORS_H

#include "backend/profile.h"

/* `sys` is "/sys". What cannot be read stays as it is. */
void tt_cpu_sensors_read(const char *sys, struct tt_device_sensors *out);

#endif
