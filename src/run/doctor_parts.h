/* Inside trimtab doctor: what a rank reads about its machine (doctor_machine.c). */
#ifndef TT_RUN_DOCTOR_PARTS_H
#define TT_RUN_DOCTOR_PARTS_H

#include "run/doctor.h"

/* Fills host, limits, the interface towards `host` (of rank 0; empty: none), and RDMA devices. */
void tt_doctor_look_at_machine(const char *host, struct tt_doctor_rank *found);
/* The RDMA ports below `devices`, as in /sys/class/infiniband. */
void tt_doctor_find_rdma(const char *devices, struct tt_doctor_rank *found);
/* A sum of names, sizes, first and last bytes of the file or the files of the folder `path`; 0: it is not there. */
uint64_t tt_doctor_sum(const char *path);

/* By the plan of the run, where model_name_or_path is a folder here and ranks compute on processors. */
void tt_doctor_plan(const struct tt_job_spec *job, const struct tt_world *world,
                    struct tt_doctor_needs *needs);

#endif
