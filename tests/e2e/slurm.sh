#!/bin/bash
# Two machines (namespaces) as the two nodes of a real Slurm, slurmctld and slurmd of Debian's slurm-wlm with munge, and
# the script of `trimtab render sbatch`, submitted as it is: it trains, stops before the time limit, is put back into the
# queue, resumes, survives a rank that is killed, and is cancelled. Needs root, slurm-wlm and munge.
PATH=$PATH:/usr/sbin:/sbin
for program in slurmctld slurmd munged sbatch; do
    command -v $program >/dev/null || { echo "skipped: there is no $program (Debian: slurm-wlm, munge)"; exit 77; }
done
[ "$(id -u)" -eq 0 ] || { echo "skipped: slurmd needs root"; exit 77; }
# shellcheck disable=SC2154
source "$(dirname "$0")/../tools/machines.sh" "$1"
mkdir "$folder/etc" "$folder/state" "$folder/run" "$folder/bin" "$folder/work"
chmod 755 "$folder"
printf '127.0.0.1 localhost\n10.81.1.1 n1\n10.81.1.2 n2\n' >"$folder/hosts"
head -c 128 /dev/urandom >"$folder/etc/munge.key" && chmod 400 "$folder/etc/munge.key"
for name in n1 n2; do
    machine $name 'mount --bind "$2/hosts" /etc/hosts'
    [ $name = n1 ] && a=$made || b=$made
done
in_machine "$a" ip link add cable type veth peer name cable netns "$b" 2>"$folder/said" ||
    { echo "skipped: no cable between machines: $(tail -1 "$folder/said")"; exit 77; }
in_machine "$a" ip addr add 10.81.1.1/24 dev cable
in_machine "$b" ip addr add 10.81.1.2/24 dev cable
for machine in "$a" "$b"; do in_machine "$machine" ip link set cable up; done
processors=$(nproc)
cat >"$folder/etc/slurm.conf" <<END
ClusterName=tt
SlurmctldHost=n1
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/run/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/run/spool.%n
SlurmctldPidFile=$folder/run/slurmctld.pid
SlurmdPidFile=$folder/run/slurmd.%n.pid
SlurmctldLogFile=$folder/run/slurmctld.log
SlurmdLogFile=$folder/run/slurmd.%n.log
ReturnToService=2
KillWait=30
NodeName=n[1-2] CPUs=$processors RealMemory=12000 State=UNKNOWN
PartitionName=all Nodes=n[1-2] Default=YES MaxTime=INFINITE State=UP
END
export SLURM_CONF=$folder/etc/slurm.conf
munged --force --foreground --socket "$folder/run/munge" --key-file "$folder/etc/munge.key" --pid-file "$folder/run/munged.pid" \
    --log-file "$folder/run/munged.log" --seed-file "$folder/run/munged.seed" >"$folder/run/munged.said" 2>&1 &
started+=("$!")
for ((i = 0; i < 100; i++)); do [ ! -S "$folder/run/munge" ] || break; sleep 0.1; done
nsenter --target "$a" --net --uts --mount slurmctld -D >"$folder/run/slurmctld.said" 2>&1 &
started+=("$!")
for name in n1 n2; do
    nsenter --target "$([ $name = n1 ] && echo "$a" || echo "$b")" --net --uts --mount slurmd -D -N $name >"$folder/run/slurmd.$name.said" 2>&1 &
    started+=("$!")
done
# From the folder of the jobs, which entering another mount namespace leaves.
slurm() { in_machine "$a" sh -c 'cd "$0" && exec "$@"' "$folder/work" "$@"; }
for ((i = 0; i < 300; i++)); do
    [ "$(slurm sinfo -h -N -t idle -o %N 2>/dev/null | wc -l)" -lt 2 ] || break
    sleep 0.1
done
[ $i -lt 300 ] || { echo "skipped: this Slurm does not start: $(tail -q -n 3 "$folder"/run/slurm*)"; exit 77; }
echo "$(slurmd -V), $(munged --version | head -n 1); $(slurm sinfo -h -o '%D nodes, %c processors, %m MB each')"
cd "$folder/work" || exit 1
cp -r "$root/examples/demo/model" "$root/examples/demo/data" . && chmod -R a+rX .
export PATH=$build:$PATH
base=(--model model --dataset_name data/train.jsonl --device cpu --seed 7 --bf16 false --threads 1 --lora_target_modules all-linear
    --max_length 64 --per_device_train_batch_size 1 --logging_steps 1)
nodes=(--nodes 2 --num_processes 4 --cpus_per_node "$processors" --reserve_memory 2GiB)
# render NAME SETTINGS...
render() { "$build/trimtab" render sbatch "${base[@]}" "${nodes[@]}" --name "$1" --output_dir "$1" "${@:2}" >"$1.sbatch" 2>said || fail "render $1: $(cat said)"; }
# submit NAME OPTIONS...: sets $job; its output is in slurm-$job.out
submit() { job=$(slurm sbatch --parsable "${@:2}" "$1.sbatch" 2>said) || { fail "sbatch $1: $(cat said)"; return 1; }; }
state() { slurm scontrol show job "$job" | sed -n "s/.*\b$1=\([^ ]*\).*/\1/p"; }
# until_state STATE SECONDS
until_state() {
    local until=$((SECONDS + $2))
    while [ $SECONDS -lt $until ]; do
        [ "$(state JobState)" != "$1" ] || return 0
        sleep 0.2
    done
    fail "job $job is $(state JobState) ($(state Reason)), not $1: $(tail -n 5 "slurm-$job.out")"
    return 1
}
says() { # TEXT SECONDS
    local until=$((SECONDS + $2))
    while [ $SECONDS -lt $until ]; do
        ! grep -qE "$1" "slurm-$job.out" 2>/dev/null || return 0
        sleep 0.1
    done
    fail "job $job does not say '$1': $(tail -n 5 "slurm-$job.out")"
    return 1
}
secrets() { find "$folder/work" -name secret; }

# ---- a run from start to end ----
"$build/trimtab" train "${base[@]}" --ranks 4 --output_dir threads --max_steps 4 --save_strategy no >said 2>&1 || fail "threads: $(tail -n 3 said)"
render short --max_steps 4 --save_strategy no
submit short && until_state COMPLETED 120
cmp -s threads/adapter_model.safetensors short/adapter_model.safetensors || fail "other bits than four ranks of one process: $(cat "slurm-$job.out")"
[ -z "$(secrets)" ] || fail "the job secret stays: $(secrets)"

# ---- the time limit: SIGTERM in time, a checkpoint, back into the queue ----
again() { # NUMBER: the job resumes for the NUMBERth time, without the pause of a job that was put back
    local i
    # Slurm would count the end of the former batch script as that of a job that starts at once.
    for ((i = 0; i < 300; i++)); do
        [ "$(slurm sinfo -h -N -t idle -o %N | wc -l)" -ne 2 ] || break
        sleep 0.2
    done
    sleep 5
    for ((i = 0; i < 300; i++)); do
        [ "$(state JobState)" != PENDING ] || slurm scontrol update JobId="$job" StartTime=now 2>/dev/null
        [ "$(grep -c '^resuming from' "slurm-$job.out")" -lt "$1" ] || return 0
        sleep 0.2
    done
    fail "job $job does not resume: $(state JobState) $(state Reason): $(tail -n 5 "slurm-$job.out")"
    return 1
}
stopped() { grep -c '^error: stopped on request after step [0-9]* of 100000; checkpoint-[0-9]* is complete' "slurm-$job.out"; }
render long --max_steps 100000 --learning_rate 1e-6 --save_steps 100000 --step_seconds 2
submit long --time=2 && says '^step 3/' 60
says '^error: stopped on request' 120
until_state PENDING 30
[ "$(state ExitCode)" = 0:0 ] && [ "$(state Restarts)" = 1 ] || fail "after the time limit: $(slurm scontrol show job "$job")"
[ -z "$(secrets)" ] || fail "the job secret stays after a stop"
again 1
# ---- a rank is killed: the others end, the script puts the job back ----
says '^step [0-9]*/.* left' 30
killed=
for process in $(pgrep -f "trimtab train --config $folder/work/long-$job/config.yaml"); do
    tr '\0' '\n' <"/proc/$process/environ" | grep -qx SLURM_PROCID=3 && [ "$(cat "/proc/$process/comm")" = trimtab ] && killed=$process
done
before=$SECONDS
kill -KILL "$killed" && says '^error: rank 3 .*closed its connection' 30 && until_state PENDING 60
echo "a killed rank: the job is in the queue again after $((SECONDS - before)) s"
again 2
# ---- the administrator, or preemption, puts it back ----
sleep 3
slurm scontrol requeue "$job"
until_state PENDING 60
[ "$(stopped)" -eq 2 ] || fail "no stop at requeue: $(tail -n 5 "slurm-$job.out")"
[ -z "$(secrets)" ] || fail "the job secret stays after scontrol requeue"
again 3
# ---- cancelled ----
sleep 3
slurm scancel "$job"
until_state CANCELLED 60
for ((i = 0; i < 100; i++)); do [ "$(stopped)" -lt 3 ] || break; sleep 0.1; done
[ "$(stopped)" -eq 3 ] || fail "no stop when cancelled: $(tail -n 5 "slurm-$job.out")"
[ -z "$(secrets)" ] || fail "the job secret stays after scancel"
"$build/trimtab" checkpoint verify long >said 2>&1 || fail "checkpoints: $(tail -n 1 said)"

# ---- wrong settings end the job, once ----
sed 's/^max_length: .*/max_length: nonsense/' short.sbatch >wrong.sbatch
submit wrong && until_state FAILED 60
[ "$(state ExitCode)" = 2:0 ] && [ "$(state Restarts)" = 0 ] || fail "wrong settings: $(state ExitCode), $(state Restarts) restarts"

# ---- srun alone: with MASTER_ADDR by TCP; without, and without a server of MPI, a message and no step ----
line=(srun --nodes 2 --ntasks 4 --mem 2000 "$build/trimtab" train "${base[@]}" --max_steps 4 --save_strategy no)
MASTER_ADDR=n1 MASTER_PORT=29600 slurm "${line[@]}" --output_dir direct >said 2>&1 || fail "srun with MASTER_ADDR: $(tail -n 3 said)"
cmp -s threads/adapter_model.safetensors direct/adapter_model.safetensors || fail "srun with MASTER_ADDR: other bits"
code=0
slurm "${line[@]}" --output_dir none >said 2>&1 || code=$?
{ [ $code -eq 2 ] || grep -q 'no MPI' said; } && grep -q 'hint: .*MASTER_ADDR' said || fail "srun without MASTER_ADDR: exit $code: $(tail -n 3 said)"
[ $failures -eq 0 ] && echo "all as expected, after $SECONDS s"
exit $((failures > 0))
