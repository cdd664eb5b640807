#!/usr/bin/env bash
# TPUs through queued resources: launch/tpu.sh VERB [--SETTING VALUE ...] [-- COMMAND ...]
#
#   up       create, wait, copy, install, check and run, in one go
#   resume   the same, then join; after a preemption all of it again, until the command has ended
#   create   ask for the machines          wait     until they are there and healthy
#   copy     the code to every worker      install  it, into an environment of its own
#   check    nobody missing, all the same  run      check, then start COMMAND on every worker
#   tail     the log of one worker         status   what every worker is doing
#   join     until the command has ended on every worker; ends with its exit code
#   stop     the command on every worker   fetch    a worker's folder to here
#   delete   the machines; says what goes on costing money
#
# Not for tpu7x (Ironwood), which queued resources do not serve: that is launch/gke.sh.
# shellcheck source=launch/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=launch/fleet.sh
. "$LAUNCH/fleet.sh"
# shellcheck source=launch/chips.sh
. "$LAUNCH/chips.sh"

common_options
option project "" '[a-z]([-a-z0-9.:]*[a-z0-9])' "the cloud project's id"
option zone "" '[a-z]+-[a-z]+[0-9]+-[a-z]' "zone, such as europe-west4-b"
option type "" '[a-z0-9]+-[0-9]+' "accelerator: v4-N and v5p-N count cores (2 a chip), v5litepod-N and v6e-N chips"
option slices 1 '[1-9][0-9]*' "how many slices of that type"
option runtime "" '[a-z0-9.-]*' "software of the machines; by default the one that goes with the type"
option spot false flag "spot capacity: cheap, and may be taken away"
option reserved false flag "from the project's reservation"
option valid-for "" '[0-9]+[smhd]' "how long the request may queue, such as 6h; by default for ever"
option network "" '[a-z0-9-]*' "VPC network"
option subnetwork "" '[a-z0-9-]*' "VPC subnetwork"
option service-account "" '[a-zA-Z0-9@._-]*' "account that the machines act as"
option internal-ips false flag "no public addresses"
option iap false flag "reach the workers through the identity-aware proxy"

where() { echo "--zone=${SET[zone]}" "--project=${SET[project]}"; }

node() { # N: a slice's node
    if [ "${SET[slices]}" -eq 1 ]; then echo "${SET[name]}"; else echo "${SET[name]}-$1"; fi
}

workers() { echo $(($(hosts_of "${SET[type]}") * SET[slices])); }

chips() { echo $(($(chips_of "${SET[type]}") * SET[slices])); }

# shellcheck disable=SC2046 # `where` is words on purpose: its parts were held to patterns
gcloud_tpu() { # run|query ANSWER..., then the words of `gcloud compute tpus`
    local how=("$1")
    shift
    if [ "${how[0]}" = query ]; then how+=("$1"); shift; fi
    "${how[@]}" gcloud compute tpus "$@" $(where)
}

reach() { # prints the flags for ssh and scp
    if [ "${SET[iap]}" = true ]; then echo --tunnel-through-iap; return; fi
    [ "${SET[internal-ips]}" = false ] || echo --internal-ip
}

# shellcheck disable=SC2046
on_all() { gcloud_tpu run queued-resources ssh "${SET[name]}" --node=all --worker=all "--command=$1" $(reach); }

# shellcheck disable=SC2046
on_one() {
    local each=$(($(workers) / SET[slices]))
    [ "$1" -lt "$(workers)" ] || die 2 "--worker=$1: there are workers 0 to $(($(workers) - 1))"
    gcloud_tpu run queued-resources ssh "${SET[name]}" --node=$(($1 / each)) --worker=$(($1 % each)) "--command=$2" $(reach)
}

# shellcheck disable=SC2046
push() { # -p keeps the mode: a file of secrets stays unreadable for others
    gcloud_tpu run queued-resources scp "$1" "${SET[name]}:" --node=all --worker=all --scp-flag=-p $(reach)
}

# shellcheck disable=SC2046
pull() {
    local each=$(($(workers) / SET[slices]))
    gcloud_tpu run queued-resources scp "${SET[name]}:$2" "$3" --node=$(($1 / each)) --worker=$(($1 % each)) $(reach)
}

resource_state() { # the queued resource's own word, or NONE
    local text
    if text=$(gcloud_tpu query ACTIVE queued-resources describe "${SET[name]}" "--format=value(state.state)" 2>&1); then
        printf '%s\n' "$text" | tail -n 1
    elif [[ $text =~ NOT_FOUND|"was not found"|"not found" ]]; then
        echo NONE
    else
        say "$text"
        say "$SELF: the state of ${SET[name]} cannot be read: see above"
        echo UNKNOWN
    fi
}

machines() {
    local is
    is=$(resource_state)
    case $is in
        NONE) echo none ;;
        ACTIVE) if healthy; then echo ready; else echo waiting; fi ;;
        SUSPENDED | SUSPENDING) echo gone ;;
        FAILED | DELETING) echo failed ;;
        UNKNOWN) echo unknown ;;
        *) echo waiting ;;
    esac
}

healthy() { # every slice READY, and HEALTHY where its health is told; prints nothing
    local i told
    for ((i = 0; i < SET[slices]; i++)); do
        told=$(gcloud_tpu query "READY HEALTHY" tpu-vm describe "$(node "$i")" "--format=value(state,health)" 2>/dev/null) || return 1
        # shellcheck disable=SC2086
        set -- $told
        [ "${1:-}" = READY ] && [[ ${2:-HEALTHY} =~ ^(HEALTHY|HEALTH_UNSPECIFIED)$ ]] || return 1
    done
}

do_create() {
    local flags=("--accelerator-type=${SET[type]}" "--runtime-version=${SET[runtime]:-$(runtime_of "${SET[type]}")}")
    if [ "${SET[slices]}" -eq 1 ]; then
        flags+=("--node-id=${SET[name]}")
    else
        flags+=("--node-count=${SET[slices]}" "--node-prefix=${SET[name]}")
    fi
    [ "${SET[spot]}" = false ] || flags+=(--spot)
    [ "${SET[reserved]}" = false ] || flags+=(--reserved)
    [ "${SET[internal-ips]}" = false ] || flags+=(--internal-ips)
    [ -z "${SET[valid-for]}" ] || flags+=("--valid-until-duration=${SET[valid-for]}")
    [ -z "${SET[network]}" ] || flags+=("--network=${SET[network]}")
    [ -z "${SET[subnetwork]}" ] || flags+=("--subnetwork=${SET[subnetwork]}")
    [ -z "${SET[service-account]}" ] || flags+=("--service-account=${SET[service-account]}")
    if ! dry; then
        local is
        is=$(resource_state)
        [ "$is" = NONE ] || die 2 "${SET[name]} exists already ($is): wait or resume go on with it, delete removes it"
    fi
    watch_failure "${SET[name]} ($(chips) chips of ${SET[type]})"
    gcloud_tpu run queued-resources create "${SET[name]}" "${flags[@]}" --async ||
        die 1 "the request for ${SET[name]} was not taken: see above (quota, zone, type or runtime)"
}

do_wait() {
    local is last="" began=$SECONDS
    while :; do
        is=$(resource_state)
        [ "$is" = "$last" ] || say "${SET[name]}: $is"
        last=$is
        case $is in
            ACTIVE) if healthy; then return; fi ;;
            SUSPENDED | SUSPENDING)
                say "${SET[name]} was taken away while it was waited for"
                return "$GONE"
                ;;
            FAILED) die 1 "${SET[name]} has failed: gcloud compute tpus queued-resources describe ${SET[name]} $(where) says why" ;;
            NONE) die 1 "${SET[name]} does not exist: create makes it" ;;
        esac
        [ $((SECONDS - began)) -lt "${SET[patience]}" ] ||
            die 1 "${SET[name]} is $is after ${SET[patience]} s: raise --patience, or delete it and try another zone"
        pause
    done
}

discard() { # a suspended resource keeps its share of the quota until it is deleted
    gcloud_tpu run queued-resources delete "${SET[name]}" --force --quiet || die 1 "${SET[name]} could not be deleted"
}

do_delete() {
    local is
    is=$(resource_state)
    if [ "$is" = NONE ]; then
        say "${SET[name]}: there is nothing to delete"
    else
        confirm "Delete ${SET[name]} ($is, $(chips) chips of ${SET[type]}) and all that is on its disks?" ||
            die 2 "not deleted: ${SET[name]} ($(chips) chips) goes on costing money"
        trap - EXIT
        discard
        say "${SET[name]} is deleted; its $(chips) chips cost nothing any more."
    fi
    say "Not touched, and costing until you remove them: buckets, disks and reservations. Queued resources left in ${SET[zone]}:"
    gcloud_tpu run queued-resources list || say "(they could not be listed)"
}

settings "$@"
needs_tool gcloud "install the Google Cloud CLI and run gcloud auth login"
case $VERB in
    up | resume | create | wait | copy | install | check | run | tail | status | join | stop | fetch | delete) ;;
    *) die 2 "there is no verb '$VERB': see launch/$SELF help" ;;
esac
need name project zone type
[ "${SET[spot]}" = false ] || [ "${SET[reserved]}" = false ] || die 2 "--spot and --reserved exclude each other"
generation_of "${SET[type]}" >/dev/null
[ "$(generation_of "${SET[type]}")" != tpu7x ] || die 2 "queued resources do not serve tpu7x: use launch/gke.sh"
chips_of "${SET[type]}" >/dev/null
case $VERB in resume | wait | copy | install | check | run | join) watch_failure "${SET[name]} ($(chips) chips of ${SET[type]})" ;; esac
"do_$VERB"
