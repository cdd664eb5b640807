#!/usr/bin/env bash
# GPUs behind Slurm: launch/slurm.sh VERB [--SETTING VALUE ...] [-- COMMAND ...]
#
#   up       copy, install and run, in one go
#   resume   the same, then join; after a preemption, a dead node or the time limit the job is handed in again
#   copy     the code to the login node's shared folder     install  it, into an environment of its own
#   run      hand in one job: nobody missing, all the same, then COMMAND on every node
#   check    the first half of that job alone (srun, waits for an allocation)
#   wait     until the job runs            status   what the job is doing
#   tail     the job's log                 join     until the job has ended; ends with its exit code
#   stop     cancel the job                fetch    a folder to here
#   delete   cancel the job and remove the folder
#
# Runs on the login node itself, or from anywhere with --login [USER@]HOST. The home folder (or an
# absolute --dir) must be shared by login node and compute nodes. One process a node; JAX finds its
# place from Slurm's own variables.
# shellcheck source=launch/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

common_options
DEFAULT[extra]=cuda
PATTERN[dir]='[A-Za-z0-9_/][A-Za-z0-9_./-]*' # absolute here, for a shared disk
option login "" '[A-Za-z0-9._@-]*' "[USER@]HOST of the login node; empty: this is it"
option nodes 1 '[1-9][0-9]*' "how many nodes"
option gpus 8 '[1-9][0-9]*' "GPUs a node"
option partition "" '[A-Za-z0-9_,-]*' "partition"
option account "" '[A-Za-z0-9_-]*' "account that pays"
option time "" '[0-9:-]*' "time limit, as sbatch takes it; resume goes on after it"

at_login() { # COMMAND: a shell command on the login node
    if [ -n "${SET[login]}" ]; then
        run ssh -o BatchMode=yes -o ConnectTimeout=15 "${SET[login]}" "$1"
    else
        run bash -c "cd && $1"
    fi
}

to_login() { # FILE: into the home folder there
    if [ -n "${SET[login]}" ]; then
        run scp -p -o BatchMode=yes "$1" "${SET[login]}:"
    else
        run cp -p "$1" "$HOME/"
    fi
}

base() { echo "${SET[dir]}/${SET[name]}"; }
worker() { echo "bash $(base)/code/launch/worker.sh $*"; }

wanted() { # the flags that make the allocation
    printf -- '--nodes=%s --ntasks-per-node=1 --gpus-per-node=%s' "${SET[nodes]}" "${SET[gpus]}"
    [ -z "${SET[partition]}" ] || printf -- ' --partition=%s' "${SET[partition]}"
    [ -z "${SET[account]}" ] || printf -- ' --account=%s' "${SET[account]}"
    [ -z "${SET[time]}" ] || printf -- ' --time=%s' "${SET[time]}"
}

job() { # the batch script; its words were held to patterns, the command is quoted
    local command
    printf -v command ' %q' "${COMMAND[@]}"
    cat <<JOB
#!/bin/bash
#SBATCH --job-name=${SET[name]} $(wanted)
#SBATCH --output=$(base)/log/slurm-%j.out --open-mode=append --requeue
srun --ntasks-per-node=1 $(worker check) >$(base)/log/check-\$SLURM_JOB_ID
$(worker compare "${SET[nodes]}") <$(base)/log/check-\$SLURM_JOB_ID || exit 3
srun --ntasks-per-node=1 --kill-on-bad-exit=1 $(worker within)$command
JOB
}

do_copy() {
    hand_over to_login
    at_login "rm -rf $(base)/new && mkdir -p $(base)/new $(base)/log $(base)/state && tar -xzf ~/mimesis-${SET[name]}.tar.gz -C $(base)/new && bash $(base)/new/launch/worker.sh place" >&2 ||
        die 1 "placing the code failed, see above"
}

do_install() { at_login "$(worker install "${SET[extra]:-none}" "${SET[python]}")" >&2 || die 1 "installing failed, see above"; }

do_check() {
    at_login "srun $(wanted) $(worker check) | $(worker compare "${SET[nodes]}")" ||
        die 3 "the nodes are not fit to start: mend what is named above"
}

do_run() {
    needs_command run a
    local file id
    dry || ! busy || die 2 "job $(job_id) of ${SET[name]} is $(job_state) still: stop it first"
    file=$(mktemp -d)/mimesis-${SET[name]}.job
    job >"$file"
    if dry; then sed 's/^/# job: /' "$file" >&3; fi
    to_login "$file" || die 1 "copying the job failed"
    rm -r "$(dirname "$file")"
    id=$(at_login "mv ~/mimesis-${SET[name]}.job $(base)/job && sbatch --parsable $(base)/job") || die 1 "sbatch did not take the job: see above"
    id=${id%%;*}
    if dry; then return; fi
    [[ $id =~ ^[0-9]+$ ]] || die 1 "sbatch answered '$id', which is no job number"
    at_login "echo $id >$(base)/state/job"
    say "job $id is handed in; next: launch/$SELF tail or join$(same_settings)"
}

job_id() {
    if dry; then at_login "cat $(base)/state/job"; echo 1; else at_login "cat $(base)/state/job" 2>/dev/null || true; fi
}

job_state() { # STATE|CODE:SIGNAL of the job, as sacct has it; empty where there is none
    local id text
    id=$(job_id)
    [ -n "$id" ] || return 0
    if dry; then at_login "sacct -n -X -P -j $id -o State,ExitCode"; return; fi
    text=$(at_login "squeue -h -j $id -o %T" 2>/dev/null || true)
    [ -n "$text" ] || text=$(at_login "sacct -n -X -P -j $id -o State,ExitCode") || die 1 "Slurm does not say what became of job $id"
    echo "$text"
}

busy() { [[ $(job_state) =~ ^(PENDING|RUNNING|CONFIGURING|COMPLETING|REQUEUED|SUSPENDED|RESIZING) ]]; }

do_status() {
    if dry; then job_state; else echo "job $(job_id): $(job_state)"; fi
}

do_wait() {
    if dry; then job_state; return; fi
    local began=$SECONDS is
    while :; do
        is=$(job_state)
        case $is in
            RUNNING* | COMPLET*) return ;;
            PENDING* | CONFIGURING* | REQUEUED* | SUSPENDED*) ;;
            "") die 1 "there is no job of ${SET[name]}: run hands one in" ;;
            *) die 1 "the job is $is" ;;
        esac
        [ $((SECONDS - began)) -lt "${SET[patience]}" ] || die 1 "the job is $is after ${SET[patience]} s: raise --patience"
        pause
    done
}

do_tail() {
    local id
    id=$(job_id)
    [ -n "$id" ] || die 1 "there is no job of ${SET[name]}: run hands one in"
    at_login "tail -n ${SET[lines]} $([ "${SET[follow]}" = false ] || echo -F) $(base)/log/slurm-$id.out"
}

ended() { # waits for the end; the job's code, or 75 where Slurm took it away
    local is code
    while :; do
        if dry; then job_state; return; fi
        is=$(job_state)
        case $is in
            PENDING* | RUNNING* | CONFIGURING* | COMPLETING* | REQUEUED* | SUSPENDED* | RESIZING*) pause ;;
            COMPLETED*) say "the job ended well"; return 0 ;;
            PREEMPTED* | NODE_FAIL* | BOOT_FAIL* | TIMEOUT*) say "the job is $is"; return "$GONE" ;;
            "") die 1 "there is no job of ${SET[name]}: run hands one in" ;;
            *)
                code=${is#*|}
                if [ "${code#*:}" != 0 ]; then code=$((128 + ${code#*:})); else code=${code%:*}; fi
                say "the job is $is"
                [ "$code" -ne 0 ] || code=1 # cancelled
                return "$code"
                ;;
        esac
    done
}

do_join() {
    local code=0
    ended || code=$?
    [ "$code" -ne "$GONE" ] || say "launch/$SELF resume hands it in again"
    return "$code"
}

do_up() {
    needs_command up a
    do_copy
    do_install
    do_run
}

do_resume() {
    needs_command resume the
    if dry || ! busy; then do_up; else say "job $(job_id) is there already: going on with it"; fi
    resume_job do_run
}

do_stop() {
    local id
    id=$(job_id)
    [ -n "$id" ] || die 1 "there is no job of ${SET[name]}"
    at_login "scancel $id" || die 1 "scancel failed, see above"
}

do_fetch() {
    local to=${SET[to]:-fetched/${SET[name]}} half
    [ ! -e "$to" ] || die 2 "$to exists already: name another folder with --to, or remove it"
    half=$to.half
    dry || { rm -rf "$half"; mkdir -p "$half"; }
    at_login "tar -czf - -C $(base) log ${SET[from]}" >"$(if dry; then echo /dev/null; else echo "$half/all.tar.gz"; fi)" ||
        { rm -rf "$half"; die 1 "there is no whole ${SET[from]} in $(base) there"; }
    if dry; then return; fi
    tar -xzf "$half/all.tar.gz" -C "$half" || { rm -rf "$half"; die 1 "what came is no whole archive"; }
    rm "$half/all.tar.gz"
    mv "$half" "$to"
    say "fetched into $to"
}

do_delete() {
    confirm "Cancel the job of ${SET[name]} and remove $(base) there?" || die 2 "nothing was removed"
    if dry || busy; then do_stop; fi
    at_login "$(worker remove)" >&2 || die 1 "$(base) could not be removed, see above"
    say "${SET[name]} is gone. An allocation made by hand (salloc) goes on being accounted until you end it."
}

settings "$@"
case $VERB in
    up | resume | copy | install | check | run | wait | tail | status | join | stop | fetch | delete) ;;
    create) die 2 "there is nothing to create: Slurm makes the allocation when the job of run begins" ;;
    *) die 2 "there is no verb '$VERB': see launch/$SELF help" ;;
esac
need name
[ -n "${SET[login]}" ] || needs_tool sbatch "this is no login node: name one with --login"
"do_$VERB"
