#!/usr/bin/env bash
# Machines that ssh reaches (GPUs, mostly): launch/ssh.sh VERB [--SETTING VALUE ...] [-- COMMAND ...]
#
#   up       wait, copy, install, check and run, in one go
#   resume   the same, then join; when a machine was restarted all of it again
#   wait     until every host answers      status   what every worker is doing
#   copy     the code to every worker      install  it, into an environment of its own
#   check    nobody missing, all the same  run      check, then start COMMAND on every worker
#   tail     the log of one worker         join     until the command has ended; its exit code
#   stop     the command on every worker   fetch    a worker's folder to here
#   delete   what was copied, installed and written there; the machines are yours and stay
#
# One process a host. Each gets JAX_COORDINATOR_ADDRESS (the first host), JAX_NUM_PROCESSES and
# JAX_PROCESS_ID, in the order of --hosts.
# shellcheck source=launch/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=launch/fleet.sh
. "$LAUNCH/fleet.sh"

common_options
DEFAULT[extra]=cuda
option hosts "" '[A-Za-z0-9._@-]+(,[A-Za-z0-9._@-]+)*' "comma-separated, as ssh takes them: [USER@]HOST; ports and keys belong into ~/.ssh/config"
option coordinator "" '[A-Za-z0-9.-]*' "address of the first host as the others reach it; by default its name"
option port 8476 '[0-9]+' "port of the coordinator"

SSH=(-o BatchMode=yes -o ConnectTimeout=15 -o ServerAliveInterval=30)
HOSTS=()

workers() { echo "${#HOSTS[@]}"; }

on_all() { # at once on all; the code of the first that failed
    local i code=0 each waiting=()
    for i in "${!HOSTS[@]}"; do
        on_one "$i" "$1" &
        waiting+=("$!")
    done
    for i in "${waiting[@]}"; do
        each=0
        wait "$i" || each=$?
        [ "$code" -ne 0 ] || code=$each
    done
    return "$code"
}

on_one() {
    [ "$1" -lt "${#HOSTS[@]}" ] || die 2 "--worker=$1: there are workers 0 to $((${#HOSTS[@]} - 1))"
    local first=${SET[coordinator]:-${HOSTS[0]#*@}}
    run ssh "${SSH[@]}" "${HOSTS[$1]}" \
        "export JAX_COORDINATOR_ADDRESS=$first:${SET[port]} JAX_NUM_PROCESSES=${#HOSTS[@]} JAX_PROCESS_ID=$1; $2"
}

push() {
    local host
    for host in "${HOSTS[@]}"; do run scp -p "${SSH[@]}" "$1" "$host:" || return 1; done
}

pull() { run scp "${SSH[@]}" "${HOSTS[$1]}:$2" "$3"; }

machines() {
    if dry; then
        on_all true
        echo ready
    elif on_all true 2>/dev/null; then
        echo ready
    else
        echo waiting
    fi
}

do_create() { say "nothing to create: the hosts are there or they are not"; }

do_wait() {
    local began=$SECONDS
    until [ "$(machines)" = ready ]; do
        [ $((SECONDS - began)) -lt "${SET[patience]}" ] || {
            on_all true || true
            die 1 "not every host answers after ${SET[patience]} s: see above"
        }
        pause
    done
}

discard() { :; }

do_delete() {
    confirm "Remove $(base) and all that was written there from ${#HOSTS[@]} hosts?" || die 2 "nothing was removed"
    everywhere remove
    say "$(base) is removed. The hosts themselves run on, and cost what they cost: ${HOSTS[*]}"
}

settings "$@"
case $VERB in
    up | resume | wait | copy | install | check | run | tail | status | join | stop | fetch | delete) ;;
    create) die 2 "there is nothing to create: --hosts names machines that exist; up does the rest" ;;
    *) die 2 "there is no verb '$VERB': see launch/$SELF help" ;;
esac
need name hosts
IFS=, read -r -a HOSTS <<<"${SET[hosts]}"
[ "$(printf '%s\n' "${HOSTS[@]}" | sort -u | wc -l)" -eq "${#HOSTS[@]}" ] || die 2 "--hosts=${SET[hosts]} names a host twice: one process a host"
needs_tool ssh "install an ssh client"
"do_$VERB"
