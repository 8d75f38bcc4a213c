/* How a launch is recognised by what launchers leave in the environment. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "launch/launch.h"

enum { VARIABLES_MAX = 8, PATH_BYTES = 4096 };

struct launch_case {
    const char *set[VARIABLES_MAX]; /* "NAME=value" */
    struct tt_launch_spec config;
    tt_status status;
    const char *message; /* when it fails */
    struct tt_launch wanted;
};

static void clear_environment(void)
{
    static const char *const names[] = {"RANK",
                                        "WORLD_SIZE",
                                        "LOCAL_RANK",
                                        "GROUP_RANK",
                                        "MASTER_ADDR",
                                        "MASTER_PORT",
                                        "TRIMTAB_NODE",
                                        "TORCHELASTIC_USE_AGENT_STORE",
                                        "PET_NNODES",
                                        "PET_NODE_RANK",
                                        "PET_NPROC_PER_NODE",
                                        "PET_MASTER_ADDR",
                                        "SLURM_PROCID",
                                        "SLURM_NTASKS",
                                        "SLURM_STEP_ID",
                                        "SLURM_LOCALID",
                                        "SLURM_NODEID",
                                        "PMI_SIZE",
                                        "OMPI_COMM_WORLD_RANK",
                                        "OMPI_COMM_WORLD_SIZE",
                                        "PMI_RANK",
                                        "MV2_COMM_WORLD_SIZE",
                                        "PET_MASTER_PORT",
                                        "SLURM_STEP_NUM_TASKS",
                                        "SLURM_STEP_NUM_NODES",
                                        "LOCAL_WORLD_SIZE",
                                        "KUBERNETES_SERVICE_HOST",
                                        "LWS_GROUP_SIZE",
                                        "LWS_WORKER_INDEX",
                                        "LWS_LEADER_ADDRESS",
                                        "SKYPILOT_NUM_NODES",
                                        "SKYPILOT_NODE_RANK",
                                        "SKYPILOT_NODE_IPS",
                                        "JOB_COMPLETION_INDEX",
                                        "VC_TASK_INDEX",
                                        "RUN_UID",
                                        "RUN_ATTEMPT"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unsetenv(names[i]);
}

static void set_environment(const char *const *set)
{
    clear_environment();
    for (int i = 0; i < VARIABLES_MAX && set[i] != NULL; i++) {
        char name[64];
        size_t bytes = strcspn(set[i], "=");
        assert_true(bytes < sizeof name);
        memcpy(name, set[i], bytes);
        name[bytes] = '\0';
        assert_int_equal(setenv(name, set[i] + bytes + 1, 1), 0);
    }
}

/* In order of what would have to be thought of when one is added. */
static const struct launch_case cases[] = {
    {.wanted = {.kind = TT_LAUNCH_ALONE, .world_size = 1, .local_rank = -1, .machines = 1}},
    {.config = {.ranks = 3},
     .wanted = {.kind = TT_LAUNCH_ALONE, .world_size = 1, .local_rank = -1, .machines = 1, .ranks = 3}},
    /* torchrun with static rendezvous; with its own store at the port */
    {.set = {"RANK=5", "WORLD_SIZE=8", "LOCAL_RANK=1", "GROUP_RANK=2", "MASTER_ADDR=h0", "MASTER_PORT=1234"},
     .wanted = {.kind = TT_LAUNCH_PROCESSES,
                .rank = 5,
                .world_size = 8,
                .local_rank = 1,
                .machines = 1,
                .host = "h0",
                .port = 1234,
                .machine = "2"}},
    {.set = {"RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=1", "MASTER_ADDR=h0", "MASTER_PORT=1234",
             "TORCHELASTIC_USE_AGENT_STORE=True"},
     .wanted = {.kind = TT_LAUNCH_PROCESSES,
                .rank = 1,
                .world_size = 2,
                .local_rank = 1,
                .machines = 1,
                .host = "h0",
                .port = 1235}},
    /* without a port; with settings that know better; alone in its world */
    {.set = {"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=::1"},
     .wanted = {.kind = TT_LAUNCH_PROCESSES,
                .rank = 0,
                .world_size = 2,
                .local_rank = -1,
                .machines = 1,
                .host = "::1",
                .port = 29500,
                .local = true}},
    {.set = {"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=h0", "MASTER_PORT=1"},
     .config = {.main_process_ip = "h9", .main_process_port = 77},
     .wanted = {.kind = TT_LAUNCH_PROCESSES,
                .rank = 0,
                .world_size = 2,
                .local_rank = -1,
                .machines = 1,
                .host = "h9",
                .port = 77}},
    {.set = {"RANK=0", "WORLD_SIZE=1"},
     .wanted = {.kind = TT_LAUNCH_PROCESSES, .world_size = 1, .local_rank = -1, .machines = 1}},
    {.set = {"RANK=2", "WORLD_SIZE=2", "MASTER_ADDR=h0"}, .status = TT_ERR_USAGE, .message = "RANK is '2'"},
    {.set = {"RANK=x", "WORLD_SIZE=2", "MASTER_ADDR=h0"}, .status = TT_ERR_USAGE, .message = "RANK is 'x'"},
    {.set = {"RANK=0", "WORLD_SIZE=2"},
     .status = TT_ERR_USAGE,
     .message = "the address of rank 0 is missing"},
    /* more than an address */
    {.set = {"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=[::1]"},
     .status = TT_ERR_USAGE,
     .message = "the address of rank 0 is '[::1]', which is not an address alone"},
    {.set = {"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=[fe80::1]:29500"},
     .status = TT_ERR_USAGE,
     .message = "'[fe80::1]:29500'"},
    {.set = {"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=tcp://h0:29500"},
     .status = TT_ERR_USAGE,
     .message = "'tcp://h0:29500'"},
    {.set = {"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=h0:29500"},
     .status = TT_ERR_USAGE,
     .message = "'h0:29500'"},
    {.config = {.num_machines = 2, .main_process_ip = "tcp://10.0.0.1"},
     .status = TT_ERR_USAGE,
     .message = "'tcp://10.0.0.1'"},
    /* a launcher's number of the process without their count, beside a file with another number of the machine */
    {.set = {"RANK=1", "MASTER_ADDR=h0"},
     .config = {.num_machines = 2},
     .status = TT_ERR_USAGE,
     .message = "the environment variable RANK is set, but WORLD_SIZE is not"},
    {.set = {"PET_NODE_RANK=1", "MASTER_ADDR=h0"},
     .config = {.num_machines = 2},
     .status = TT_ERR_USAGE,
     .message = "the environment variable PET_NODE_RANK is set, but PET_NNODES is not"},
    {.set = {"RANK=1", "MASTER_ADDR=h0"},
     .config = {.num_machines = 2, .machine_rank = 1},
     .wanted = {.kind = TT_LAUNCH_MACHINES,
                .world_size = 1,
                .local_rank = -1,
                .machines = 2,
                .machine_rank = 1,
                .host = "h0",
                .port = 29500,
                .machine = "1"}},
    {.set = {"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=h0", "MASTER_PORT=99999"},
     .status = TT_ERR_USAGE,
     .message = "MASTER_PORT is '99999'"},
    {.set = {"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=h0"},
     .config = {.ranks = 2},
     .status = TT_ERR_USAGE,
     .message = "--ranks 2, but RANK is set"},
    /* all ranks on this machine: torchrun's count; an address of loopback, unless "localhost" is an
     * operator's word for rank 0 alone; what MASTER_ADDR resolves to here says nothing */
    {.set = {"RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=h0"},
     .wanted = {.kind = TT_LAUNCH_PROCESSES,
                .rank = 1,
                .world_size = 2,
                .local_rank = 1,
                .machines = 1,
                .host = "h0",
                .port = 29500,
                .local = true}},
    {.set = {"RANK=1", "WORLD_SIZE=4", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=127.0.0.9"},
     .wanted = {.kind = TT_LAUNCH_PROCESSES,
                .rank = 1,
                .world_size = 4,
                .local_rank = 1,
                .machines = 1,
                .host = "127.0.0.9",
                .port = 29500,
                .local = true}},
    {.set = {"RANK=1", "WORLD_SIZE=4", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=localhost"},
     .wanted = {.kind = TT_LAUNCH_PROCESSES,
                .rank = 1,
                .world_size = 4,
                .local_rank = 1,
                .machines = 1,
                .host = "localhost",
                .port = 29500,
                .local = true}},
    {.set = {"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=localhost", "KUBERNETES_SERVICE_HOST=10.96.0.1"},
     .wanted = {.kind = TT_LAUNCH_PROCESSES,
                .rank = 0,
                .world_size = 2,
                .local_rank = -1,
                .machines = 1,
                .host = "localhost",
                .port = 29500}},
    {.set = {"RANK=0", "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=0", "MASTER_ADDR=h0"},
     .status = TT_ERR_USAGE,
     .message = "LOCAL_WORLD_SIZE is '0'"},
    {.set = {"SLURM_PROCID=1", "SLURM_NTASKS=4", "SLURM_STEP_ID=0", "SLURM_LOCALID=1", "MASTER_ADDR=h0",
             "SLURM_STEP_NUM_NODES=1"},
     .wanted = {.kind = TT_LAUNCH_PROCESSES,
                .rank = 1,
                .world_size = 4,
                .local_rank = 1,
                .machines = 1,
                .host = "h0",
                .port = 29500,
                .local = true}},
    {.set = {"SLURM_PROCID=1", "SLURM_NTASKS=4", "SLURM_STEP_ID=0", "SLURM_LOCALID=1", "MASTER_ADDR=h0",
             "SLURM_STEP_NUM_NODES=2"},
     .wanted = {.kind = TT_LAUNCH_PROCESSES,
                .rank = 1,
                .world_size = 4,
                .local_rank = 1,
                .machines = 1,
                .host = "h0",
                .port = 29500}},
    /* srun: over tcp when an address is known, else over MPI */
    {.set = {"SLURM_PROCID=1", "SLURM_NTASKS=4", "SLURM_STEP_ID=0", "SLURM_LOCALID=1", "SLURM_NODEID=0",
             "MASTER_ADDR=h0", "SLURM_STEP_NUM_TASKS=4"},
     .wanted = {.kind = TT_LAUNCH_PROCESSES,
                .rank = 1,
                .world_size = 4,
                .local_rank = 1,
                .machines = 1,
                .host = "h0",
                .port = 29500,
                .machine = "0"}},
    {.set = {"SLURM_PROCID=1", "SLURM_NTASKS=4", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=4"},
     .wanted = {.kind = TT_LAUNCH_MPI, .world_size = 1, .local_rank = -1, .machines = 1}},
    {.set = {"OMPI_COMM_WORLD_SIZE=4"},
     .wanted = {.kind = TT_LAUNCH_MPI, .world_size = 1, .local_rank = -1, .machines = 1}},
    {.set = {"OMPI_COMM_WORLD_SIZE=4"},
     .config = {.ranks = 2},
     .status = TT_ERR_USAGE,
     .message = "under mpirun"},
    /* one process a pod: RANK counts pods there and is not looked at */
    {.set = {"PET_NNODES=2", "PET_NODE_RANK=1", "PET_NPROC_PER_NODE=4", "PET_MASTER_ADDR=pod0",
             "PET_MASTER_PORT=29", "RANK=1", "WORLD_SIZE=8"},
     .wanted = {.kind = TT_LAUNCH_MACHINES,
                .world_size = 1,
                .local_rank = -1,
                .machines = 2,
                .machine_rank = 1,
                .ranks = 4,
                .host = "pod0",
                .port = 29,
                .machine = "1"}},
    {.set = {"PET_NNODES=2", "PET_NODE_RANK=0", "PET_NPROC_PER_NODE=auto", "MASTER_ADDR=pod0",
             "MASTER_PORT=23456"},
     .wanted = {.kind = TT_LAUNCH_MACHINES,
                .world_size = 1,
                .local_rank = -1,
                .machines = 2,
                .host = "pod0",
                .port = 23456,
                .machine = "0"}},
    {.set = {"PET_NNODES=1", "PET_NODE_RANK=0", "PET_NPROC_PER_NODE=2"},
     .wanted = {.kind = TT_LAUNCH_ALONE, .world_size = 1, .local_rank = -1, .machines = 1, .ranks = 2}},
    {.set = {"PET_NNODES=1:4", "PET_NODE_RANK=0"}, .status = TT_ERR_UNSUPPORTED, .message = "'1:4'"},
    {.set = {"PET_NNODES=2", "PET_NODE_RANK=2"}, .status = TT_ERR_USAGE, .message = "PET_NODE_RANK is '2'"},
    /* by hand */
    {.config = {.num_machines = 2, .machine_rank = 1, .main_process_ip = "10.0.0.1", .num_processes = 8},
     .wanted = {.kind = TT_LAUNCH_MACHINES,
                .world_size = 1,
                .local_rank = -1,
                .machines = 2,
                .machine_rank = 1,
                .ranks = 4,
                .host = "10.0.0.1",
                .port = 29500,
                .machine = "1"}},
    {.config = {.num_machines = 2, .main_process_ip = "10.0.0.1", .num_processes = 5},
     .status = TT_ERR_USAGE,
     .message = "num_processes 5 is not a multiple of num_machines 2"},
    {.set = {"TRIMTAB_NODE=rack 1"},
     .config = {.num_machines = 2, .main_process_ip = "10.0.0.1"},
     .wanted = {.kind = TT_LAUNCH_MACHINES,
                .world_size = 1,
                .local_rank = -1,
                .machines = 2,
                .host = "10.0.0.1",
                .port = 29500,
                .machine = "rack 1"}},
    /* LeaderWorkerSet; SkyPilot, whose first address is that of rank 0 */
    {.set = {"LWS_GROUP_SIZE=2", "LWS_WORKER_INDEX=1", "LWS_LEADER_ADDRESS=sft-0.sft.ns"},
     .wanted = {.kind = TT_LAUNCH_MACHINES,
                .world_size = 1,
                .local_rank = -1,
                .machines = 2,
                .machine_rank = 1,
                .host = "sft-0.sft.ns",
                .port = 29500,
                .machine = "1"}},
    {.set = {"LWS_GROUP_SIZE=1", "LWS_WORKER_INDEX=0", "LWS_LEADER_ADDRESS=sft-0.sft.ns"},
     .wanted = {.kind = TT_LAUNCH_ALONE, .world_size = 1, .local_rank = -1, .machines = 1}},
    {.set = {"SKYPILOT_NUM_NODES=3", "SKYPILOT_NODE_RANK=2", "SKYPILOT_NODE_IPS=10.0.0.7\n10.0.0.8\n10.0.0.9",
             "MASTER_PORT=77"},
     .config = {.num_machines = 3, .num_processes = 6},
     .wanted = {.kind = TT_LAUNCH_MACHINES,
                .world_size = 1,
                .local_rank = -1,
                .machines = 3,
                .machine_rank = 2,
                .ranks = 2,
                .host = "10.0.0.7",
                .port = 77,
                .machine = "2"}},
    /* an Indexed Job numbers the pods, settings have the rest; without an address each index is its own run */
    {.set = {"JOB_COMPLETION_INDEX=1", "MASTER_ADDR=sft-0.sft"},
     .config = {.num_machines = 2, .num_processes = 4},
     .wanted = {.kind = TT_LAUNCH_MACHINES,
                .world_size = 1,
                .local_rank = -1,
                .machines = 2,
                .machine_rank = 1,
                .ranks = 2,
                .host = "sft-0.sft",
                .port = 29500,
                .machine = "1"}},
    {.set = {"JOB_COMPLETION_INDEX=1", "PET_NNODES=2", "PET_NODE_RANK=1", "PET_MASTER_ADDR=pod0"},
     .wanted = {.kind = TT_LAUNCH_MACHINES,
                .world_size = 1,
                .local_rank = -1,
                .machines = 2,
                .machine_rank = 1,
                .host = "pod0",
                .port = 29500,
                .machine = "1"}},
    {.set = {"JOB_COMPLETION_INDEX=5"},
     .wanted = {.kind = TT_LAUNCH_ALONE, .world_size = 1, .local_rank = -1, .machines = 1}},
    {.set = {"JOB_COMPLETION_INDEX=2", "MASTER_ADDR=h0"},
     .config = {.num_machines = 2},
     .status = TT_ERR_USAGE,
     .message = "JOB_COMPLETION_INDEX is '2'"},
    {.set = {"JOB_COMPLETION_INDEX=0", "MASTER_ADDR=h0"},
     .config = {.num_machines = 3, .machine_rank = 2},
     .status = TT_ERR_USAGE,
     .message = "machine_rank is 2, but the environment variable JOB_COMPLETION_INDEX is 0"},
    {.set = {"JOB_COMPLETION_INDEX=0"},
     .config = {.num_machines = 1, .main_process_ip = "h0"},
     .status = TT_ERR_USAGE,
     .message = "but not the number of machines"},
    /* Volcano: its tasks are numbered as those of an Indexed Job; with its plugin for PyTorch RANK and WORLD_SIZE count
     * pods, whatever the number of their ranks */
    {.set = {"VC_TASK_INDEX=1", "MASTER_ADDR=v-node-0.v"},
     .config = {.num_machines = 2, .ranks = 4},
     .wanted = {.kind = TT_LAUNCH_MACHINES,
                .world_size = 1,
                .local_rank = -1,
                .machines = 2,
                .machine_rank = 1,
                .ranks = 4,
                .host = "v-node-0.v",
                .port = 29500,
                .machine = "1"}},
    {.set = {"VC_TASK_INDEX=0", "RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=v-master-0.v", "MASTER_PORT=23456"},
     .config = {.ranks = 4},
     .wanted = {.kind = TT_LAUNCH_MACHINES,
                .world_size = 1,
                .local_rank = -1,
                .machines = 2,
                .machine_rank = 1,
                .ranks = 4,
                .host = "v-master-0.v",
                .port = 23456,
                .machine = "1"}},
    {.set = {"VC_TASK_INDEX=0", "MASTER_ADDR=v-master-0.v"},
     .status = TT_ERR_USAGE,
     .message = "VC_TASK_INDEX and the address of rank 0 are set, but not the number of machines"},
    /* PyTorchJob: RANK counts pods, WORLD_SIZE processes */
    {.set = {"RANK=1", "WORLD_SIZE=8", "PET_NODE_RANK=1", "PET_NNODES=2", "PET_NPROC_PER_NODE=4",
             "MASTER_ADDR=p-master-0", "MASTER_PORT=23456"},
     .config = {.num_machines = 2, .num_processes = 8, .ranks = 4},
     .wanted = {.kind = TT_LAUNCH_MACHINES,
                .world_size = 1,
                .local_rank = -1,
                .machines = 2,
                .machine_rank = 1,
                .ranks = 4,
                .host = "p-master-0",
                .port = 23456,
                .machine = "1"}},
    {.set = {"RANK=0", "WORLD_SIZE=2", "PET_NODE_RANK=1", "PET_NNODES=2", "MASTER_ADDR=p-master-0"},
     .status = TT_ERR_USAGE,
     .message = "the environment variable RANK is 0, but PET_NODE_RANK is 1"},
    {.set = {"JOB_COMPLETION_INDEX=0", "PET_NODE_RANK=1", "PET_NNODES=2", "PET_MASTER_ADDR=t"},
     .status = TT_ERR_USAGE,
     .message = "JOB_COMPLETION_INDEX is 0, but PET_NODE_RANK is 1"},
    {.set = {"PET_NODE_RANK=1", "PET_NNODES=2", "PET_NPROC_PER_NODE=4", "PET_MASTER_ADDR=t"},
     .config = {.ranks = 2},
     .status = TT_ERR_USAGE,
     .message = "ranks is 2, but the environment variable PET_NPROC_PER_NODE is 4"},
    {.set = {"PET_NODE_RANK=1", "PET_NNODES=2", "PET_NPROC_PER_NODE=4", "PET_MASTER_ADDR=t"},
     .config = {.num_machines = 2, .num_processes = 2},
     .status = TT_ERR_USAGE,
     .message =
         "num_processes is 2, but the environment variables PET_NNODES and PET_NPROC_PER_NODE are 2 and 4"},
    /* the start that a cluster counts */
    {.set = {"RUN_UID=3f2a", "RUN_ATTEMPT=2"},
     .wanted = {.world_size = 1, .local_rank = -1, .machines = 1, .run = "3f2a", .attempt = 2}},
    {.set = {"RUN_ATTEMPT=first"}, .status = TT_ERR_USAGE, .message = "RUN_ATTEMPT is 'first'"},
    {.set = {"LOCAL_RANK=1"}, .status = TT_ERR_USAGE, .message = "LOCAL_RANK is set, but RANK is not"},
    /* half of a contract; a count of 1 is a whole one */
    {.set = {"RANK=1"}, .status = TT_ERR_USAGE, .message = "RANK is set, but WORLD_SIZE is not"},
    {.set = {"WORLD_SIZE=2"}, .status = TT_ERR_USAGE, .message = "WORLD_SIZE is set, but RANK is not"},
    {.set = {"PET_NNODES=2"},
     .status = TT_ERR_USAGE,
     .message = "PET_NNODES is set, but PET_NODE_RANK is not"},
    {.set = {"LWS_WORKER_INDEX=1"}, .status = TT_ERR_USAGE, .message = "LWS_GROUP_SIZE is not"},
    {.set = {"SKYPILOT_NODE_RANK=1"}, .status = TT_ERR_USAGE, .message = "SKYPILOT_NUM_NODES is not"},
    {.set = {"OMPI_COMM_WORLD_RANK=1"}, .status = TT_ERR_USAGE, .message = "OMPI_COMM_WORLD_SIZE is not"},
    {.set = {"PMI_RANK=1"}, .status = TT_ERR_USAGE, .message = "PMI_SIZE is not"},
    /* numbers of one machine that those of all contradict */
    {.set = {"RANK=0", "WORLD_SIZE=1", "LOCAL_RANK=1"},
     .status = TT_ERR_USAGE,
     .message = "LOCAL_RANK is 1, but WORLD_SIZE is 1"},
    {.set = {"RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=1", "MASTER_ADDR=h0"},
     .status = TT_ERR_USAGE,
     .message = "LOCAL_RANK is 1, but LOCAL_WORLD_SIZE is 1"},
    {.set = {"RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=4", "MASTER_ADDR=h0"},
     .status = TT_ERR_USAGE,
     .message = "LOCAL_WORLD_SIZE is 4, but WORLD_SIZE is 2"},
    {.set = {"WORLD_SIZE=1", "PET_NNODES=1"},
     .wanted = {.kind = TT_LAUNCH_ALONE, .world_size = 1, .local_rank = -1, .machines = 1}},
    {.set = {"RANK=1"},
     .config = {.num_machines = 2, .machine_rank = 1, .main_process_ip = "h0", .num_processes = 2},
     .wanted = {.kind = TT_LAUNCH_MACHINES,
                .world_size = 1,
                .local_rank = -1,
                .machines = 2,
                .machine_rank = 1,
                .ranks = 1,
                .host = "h0",
                .port = 29500,
                .machine = "1"}},
    /* settings and variables that contradict each other; torchrun itself counts processes */
    {.set = {"PET_NNODES=2", "PET_NODE_RANK=1", "PET_MASTER_ADDR=pod0"},
     .config = {.num_machines = 3},
     .status = TT_ERR_USAGE,
     .message = "num_machines is 3, but the environment variable PET_NNODES is 2"},
    {.set = {"PET_NNODES=3", "PET_NODE_RANK=1", "PET_MASTER_ADDR=pod0"},
     .config = {.num_machines = 3, .machine_rank = 2},
     .status = TT_ERR_USAGE,
     .message = "machine_rank is 2, but the environment variable PET_NODE_RANK is 1"},
    {.set = {"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=h0"},
     .config = {.num_machines = 2, .num_processes = 16},
     .status = TT_ERR_USAGE,
     .message = "num_processes is 16, but the environment variable WORLD_SIZE is 2"},
    {.set = {"RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=0", "MASTER_ADDR=h0"},
     .config = {.num_machines = 2, .num_processes = 16},
     .wanted = {.kind = TT_LAUNCH_PROCESSES,
                .rank = 1,
                .world_size = 2,
                .machines = 1,
                .host = "h0",
                .port = 29500,
                .machine = "0"}},
};

static void every_case(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct launch_case *now = &cases[i];
        struct tt_launch launch;
        tt_error_clear();
        set_environment(now->set);
        tt_status status = tt_launch_detect(&now->config, &launch);
        if (status != now->status) fail_msg("case %zu: %d, %s", i, (int)status, tt_error_last()->message);
        if (status != TT_OK) {
            if (strstr(tt_error_last()->message, now->message) == NULL)
                fail_msg("case %zu: %s", i, tt_error_last()->message);
            continue;
        }
        const struct tt_launch *wanted = &now->wanted;
        if (launch.kind != wanted->kind || launch.rank != wanted->rank ||
            launch.world_size != wanted->world_size || launch.local_rank != wanted->local_rank ||
            launch.machines != wanted->machines || launch.machine_rank != wanted->machine_rank ||
            launch.ranks != wanted->ranks || launch.port != wanted->port || launch.local != wanted->local ||
            launch.attempt != (wanted->run[0] != '\0' ? wanted->attempt : -1) ||
            strcmp(launch.run, wanted->run) != 0 || strcmp(launch.host, wanted->host) != 0 ||
            strcmp(launch.machine, wanted->machine) != 0)
            fail_msg("case %zu: kind %d, rank %d of %d, machine %d of %d '%s', %d ranks, %s port %d", i,
                     (int)launch.kind, launch.rank, launch.world_size, launch.machine_rank, launch.machines,
                     launch.machine, launch.ranks, launch.host, launch.port);
    }
    clear_environment();
}

/* Only variables that are set and not empty, in one line with the reasons. */
static void unused_variables(void **state)
{
    (void)state;
    struct tt_str text = {0};
    static const char *const names[] = {"TOKENIZERS_PARALLELISM",  "OMP_NUM_THREADS", "MKL_NUM_THREADS",
                                        "PYTORCH_CUDA_ALLOC_CONF", "NCCL_TIMEOUT",    "NCCL_SOCKET_IFNAME"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unsetenv(names[i]);
    assert_int_equal(tt_launch_list_unused(false, &text), TT_OK);
    assert_int_equal(text.bytes, 0);
    setenv("NCCL_SOCKET_IFNAME", "eth0", 1);
    assert_int_equal(tt_launch_list_unused(true, &text), TT_OK);
    assert_int_equal(text.bytes, 0);
    assert_int_equal(tt_launch_list_unused(false, &text), TT_OK);
    assert_non_null(strstr(tt_str_text(&text), "NCCL_SOCKET_IFNAME (of NCCL; ranks on processors"));
    tt_str_clear(&text);
    setenv("TOKENIZERS_PARALLELISM", "false", 1);
    setenv("NCCL_TIMEOUT", "1800", 1);
    setenv("OMP_NUM_THREADS", "", 1);
    assert_int_equal(tt_launch_list_unused(true, &text), TT_OK);
    const char *line = tt_str_text(&text);
    if (strstr(line, "without effect: TOKENIZERS_PARALLELISM (") == NULL ||
        strstr(line, "), NCCL_TIMEOUT (") == NULL || strstr(line, "OMP_NUM_THREADS") != NULL)
        fail_msg("%s", line);
    tt_str_deinit(&text);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unsetenv(names[i]);
}

static void write_secret(char path[PATH_BYTES], const char *text)
{
    const char *folder = getenv("TMPDIR");
    snprintf(path, PATH_BYTES, "%s/trimtab-secret-XXXXXX", folder != NULL ? folder : "/tmp");
    int file = mkstemp(path);
    assert_true(file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text) && close(file) == 0);
}

static void expect_no_secret(const char *message)
{
    struct tt_proof_key key;
    assert_int_equal(tt_launch_secret(&key), TT_ERR_USAGE);
    assert_false(key.is_set);
    if (strstr(tt_error_last()->message, message) == NULL) fail_msg("%s", tt_error_last()->message);
}

/* From the environment or a file, whose line end does not belong to it; never both, never a weak or an empty
 * one, never from what is no file; and no message has it. */
static void job_secrets(void **state)
{
    (void)state;
    struct tt_proof_key key, other;
    char path[PATH_BYTES];
    unsetenv("TRIMTAB_JOB_SECRET");
    unsetenv("TRIMTAB_JOB_SECRET_FILE");
    assert_int_equal(tt_launch_secret(&key), TT_OK);
    assert_false(key.is_set);
    setenv("TRIMTAB_JOB_SECRET", "0123456789abcdef-secret", 1);
    assert_int_equal(tt_launch_secret(&key), TT_OK);
    assert_true(key.is_set);
    write_secret(path, "0123456789abcdef-secret\r\n");
    setenv("TRIMTAB_JOB_SECRET_FILE", path, 1);
    expect_no_secret("are both set");
    unsetenv("TRIMTAB_JOB_SECRET");
    assert_int_equal(tt_launch_secret(&other), TT_OK);
    assert_memory_equal(&key, &other, sizeof key);
    unlink(path);
    assert_int_equal(tt_launch_secret(&other), TT_ERR_DATA);
    setenv("TRIMTAB_JOB_SECRET_FILE", "/dev/zero", 1);
    assert_int_equal(tt_launch_secret(&other), TT_ERR_DATA);
    char *long_text = calloc(1, 5001);
    memset(long_text, 'x', 5000);
    write_secret(path, long_text);
    free(long_text);
    setenv("TRIMTAB_JOB_SECRET_FILE", path, 1);
    expect_no_secret("has 5000 bytes");
    unlink(path);
    unsetenv("TRIMTAB_JOB_SECRET_FILE");
    setenv("TRIMTAB_JOB_SECRET", "", 1);
    expect_no_secret("has 0 bytes");
    setenv("TRIMTAB_JOB_SECRET", "hunter2", 1);
    expect_no_secret("has 7 bytes");
    assert_null(strstr(tt_error_last()->message, "hunter2"));
    unsetenv("TRIMTAB_JOB_SECRET");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_case),
        cmocka_unit_test(unused_variables),
        cmocka_unit_test(job_secrets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
