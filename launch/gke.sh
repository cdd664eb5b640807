#!/usr/bin/env bash
# TPUs on GKE: launch/gke.sh VERB [--SETTING VALUE ...] [-- COMMAND ...]
#
#   create   the cluster with its TPU node pools (xpk)   wait     until its nodes are ready
#   copy     build the image from the tracked files      install  push it
#   up       wait, copy, install and run, in one go
#   check    a JobSet that only looks: nobody missing, all the same
#   run      check, then COMMAND as a JobSet, one pod a machine
#   resume   run if it is not there, then join; a JobSet ended by a preemption is begun again
#   tail     the log of one pod            status   what every pod is doing
#   join     until the JobSet has ended; ends with the exit code of the first pod that failed
#   stop     remove the JobSet             fetch    a gs:// folder to here
#   delete   the cluster; says what goes on costing money
#
# The JobSet itself begins again --restarts times when a pod fails, unless the exit code is 2 or 3:
# a mistake in the command stays one.
# shellcheck source=launch/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=launch/chips.sh
. "$LAUNCH/chips.sh"

common_options
PATTERN[from]='(gs://[A-Za-z0-9_./-]+|)' DEFAULT[from]="" ABOUT[from]="gs:// folder that fetch brings: what is written inside a pod goes with it"
option project "" '[a-z]([-a-z0-9.:]*[a-z0-9])' "the cloud project's id"
option zone "" '[a-z]+-[a-z]+[0-9]+-[a-z]' "zone of the TPUs"
option cluster "" '[a-z]([-a-z0-9]{0,38}[a-z0-9])?' "the cluster's name"
option type "" '[a-z0-9]+-[0-9]+' "accelerator, such as v5p-32, v6e-64, tpu7x-64"
option topology "" '[0-9]+x[0-9]+(x[0-9]+)?' "topology of a slice; by default the one that goes with the type"
option slices 1 '[1-9][0-9]*' "how many slices of that type"
option image "" '[a-z0-9][a-z0-9._/-]*' "name of the image with its registry and folder, without a tag"
option spot false flag "spot capacity"
option reservation "" '[A-Za-z0-9_/-]*' "name of the reservation"
option restarts 5 '[0-9]+' "how often the JobSet begins again by itself"

workers() { echo $(($(hosts_of "${SET[type]}") * SET[slices])); }
chips() { echo $(($(chips_of "${SET[type]}") * SET[slices])); }
region() { echo "${SET[zone]%-*}"; }

kube() { # the context is always named, so that no other cluster is ever touched
    "$1" "${@:2:KUBE_ANSWER}" kubectl "--context=gke_${SET[project]}_$(region)_${SET[cluster]}" "${@:2+KUBE_ANSWER}"
}
k_run() { KUBE_ANSWER=0 kube run "$@"; }
k_query() { KUBE_ANSWER=1 kube query "$@"; } # ANSWER WORDS...

pods() { # NAME: a line each, POD|PHASE|EXIT|DISRUPTED|WAITING
    k_query "" get pods -l "jobset.sigs.k8s.io/jobset-name=$1" --sort-by=.metadata.name -o \
        'jsonpath={range .items[*]}{.metadata.name}{"|"}{.status.phase}{"|"}{.status.containerStatuses[0].state.terminated.exitCode}{"|"}{.status.conditions[?(@.type=="DisruptionTarget")].status}{"|"}{.status.containerStatuses[0].state.waiting.reason}{"\n"}{end}'
}

tagged() { # the image with the hash of what is in it: equal tags are equal code, on every pod
    local sum=HASH
    if ! dry; then
        sum=$(cd "$ROOT" && git ls-files -z | xargs -0 sha256sum 2>/dev/null | sha256sum | cut -c1-12) || true
    fi
    echo "${SET[image]}:$sum"
}

manifest() { # NAME RESTARTS WORDS...: the JobSet. The words are JSON strings, which YAML takes as they are
    local name=$1 restarts=$2 words="" word
    shift 2
    for word in "$@"; do
        word=${word//\\/\\\\}
        word=${word//\"/\\\"}
        word=${word//$'\n'/\\n}
        words+=", \"$word\""
    done
    cat <<YAML
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: $name
  annotations:
    alpha.jobset.sigs.k8s.io/exclusive-topology: cloud.google.com/gke-nodepool
spec:
  failurePolicy:
    maxRestarts: $restarts
    rules:
    - action: FailJobSet
      onJobFailureReasons: [PodFailurePolicy]
  replicatedJobs:
  - name: slice
    replicas: ${SET[slices]}
    template:
      spec:
        parallelism: $(hosts_of "${SET[type]}")
        completions: $(hosts_of "${SET[type]}")
        backoffLimit: 0
        podFailurePolicy:
          rules:
          - action: FailJob
            onExitCodes: {containerName: worker, operator: In, values: [2, 3]}
        template:
          spec:
            restartPolicy: Never
            hostNetwork: true
            dnsPolicy: ClusterFirstWithHostNet
            nodeSelector:
              cloud.google.com/gke-tpu-accelerator: $(label_of "${SET[type]}")
              cloud.google.com/gke-tpu-topology: ${SET[topology]:-$(topology_of "${SET[type]}")}
            containers:
            - name: worker
              image: $(tagged)
              workingDir: /mimesis
              command: ["bash", "code/launch/worker.sh"$words]
              envFrom:
              - secretRef: {name: ${SET[name]}-env, optional: true}
              resources:
                limits: {google.com/tpu: $(chips_per_host "${SET[type]}")}
YAML
}

apply() { # NAME RESTARTS WORDS...
    local text
    text=$(manifest "$@")
    if dry; then printf '%s\n' "$text" | sed 's/^/# manifest: /' >&3; fi
    k_run apply -f - <<<"$text" >&2 || die 1 "the cluster did not take the JobSet $1: see above"
}

do_create() {
    local how=--on-demand
    [ "${SET[spot]}" = false ] || how=--spot
    [ -z "${SET[reservation]}" ] || how=--reservation=${SET[reservation]}
    watch_failure "the cluster ${SET[cluster]} ($(chips) chips of ${SET[type]})"
    run xpk cluster create "--cluster=${SET[cluster]}" "--tpu-type=${SET[type]}" "--num-slices=${SET[slices]}" \
        "--zone=${SET[zone]}" "--project=${SET[project]}" "$how" || die 1 "xpk did not make the cluster: see above"
}

do_wait() {
    local began=$SECONDS ready
    run gcloud container clusters get-credentials "${SET[cluster]}" "--location=$(region)" "--project=${SET[project]}" >&2 ||
        die 1 "no credentials for ${SET[cluster]}: create makes it, gcloud container clusters list shows what there is"
    while :; do
        ready=$(k_query "$(yes True | head -n "$(workers)")" get nodes -l "cloud.google.com/gke-tpu-accelerator=$(label_of "${SET[type]}")" -o \
            'jsonpath={range .items[*]}{.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}' | grep -c True || true)
        say "$ready of $(workers) TPU machines are ready"
        [ "$ready" -lt "$(workers)" ] || return 0
        [ $((SECONDS - began)) -lt "${SET[patience]}" ] || die 3 "$ready of $(workers) machines after ${SET[patience]} s: raise --patience, or see the node pool"
        pause
    done
}

do_copy() {
    local folder
    folder=$(mktemp -d)
    if dry; then : >"$folder/context.tar.gz"; else archive "$folder/context.tar.gz"; fi
    run docker build -t "$(tagged)" -f launch/Dockerfile --build-arg "EXTRA=${SET[extra]}" - <"$folder/context.tar.gz" >&2 ||
        { rm -rf "$folder"; die 1 "the image was not built: see above"; }
    rm -rf "$folder"
}

do_install() { run docker push "$(tagged)" >&2 || die 1 "the image was not pushed: gcloud auth configure-docker, then again"; }

secret() { # the file's values go through a pipe, into no command line and no log
    [ -n "${SET[env-file]}" ] || return 0
    k_run create secret generic "${SET[name]}-env" "--from-env-file=${SET[env-file]}" --dry-run=client -o yaml |
        k_run apply -f - >&2 || die 1 "the secret ${SET[name]}-env was not taken"
}

do_check() {
    local name=${SET[name]}-check began=$SECONDS ended text
    k_run delete jobset "$name" --ignore-not-found >&2
    apply "$name" 0 check
    while ! dry; do
        text=$(pods "$name")
        ended=$(grep -cE '[|](Succeeded|Failed)[|]' <<<"$text" || true)
        [ "$ended" -lt "$(workers)" ] || break
        if [ $((SECONDS - began)) -ge "${SET[patience]}" ]; then
            say "$text"
            k_run delete jobset "$name" --ignore-not-found >&2
            die 3 "$ended of $(workers) pods have looked after ${SET[patience]} s: the others found no machine (see above)"
        fi
        if [[ $text =~ (ErrImagePull|ImagePullBackOff|InvalidImageName|CreateContainerError) ]]; then
            k_run delete jobset "$name" --ignore-not-found >&2
            die 3 "a pod waits with ${BASH_REMATCH[1]}: copy and install make $(tagged), which goes with the code as it is now"
        fi
        pause
    done
    text=$(k_query "" logs -l "jobset.sigs.k8s.io/jobset-name=$name" --tail=-1 "--max-log-requests=$(workers)")
    k_run delete jobset "$name" --ignore-not-found >&2
    if dry; then return; fi
    bash "$LAUNCH/worker.sh" compare "$(workers)" <<<"$text" || die 3 "the pods are not fit to start: mend what is named above"
}

do_run() {
    needs_command run a
    if [ -n "$(k_query "" get jobset "${SET[name]}" --ignore-not-found -o name)" ]; then
        die 2 "the JobSet ${SET[name]} is there already: join waits for it, stop removes it"
    fi
    secret
    do_check
    apply "${SET[name]}" "${SET[restarts]}" within "${COMMAND[@]}"
    say "started; next: launch/$SELF tail or join$(same_settings)"
}

do_status() {
    k_run get jobset "${SET[name]}"
    pods "${SET[name]}"
}

do_tail() {
    local pod
    pod=$(pods "${SET[name]}" | awk -F'|' -v n="${SET[worker]}" 'NR == n + 1 {print $1}')
    dry || [ -n "$pod" ] || die 1 "there is no pod ${SET[worker]} of ${SET[name]}: status shows what there is"
    k_run logs "${pod:-POD}" "--tail=${SET[lines]}" "--follow=${SET[follow]}"
}

ended() { # until the JobSet has ended; the first pod's code, or 75 where pods were taken away
    local is text code
    while :; do
        is=$(k_query Completed get jobset "${SET[name]}" -o 'jsonpath={.status.terminalState}') || die 1 "there is no JobSet ${SET[name]}: run starts it"
        case $is in
            Completed) say "the command ended well on every pod"; return 0 ;;
            Failed) break ;;
            *) pause ;;
        esac
    done
    text=$(pods "${SET[name]}")
    say "$text"
    if [[ $text == *"|True|"* ]]; then return "$GONE"; fi
    code=$(awk -F'|' '$3 ~ /^[0-9]+$/ && $3 != 0 {print $3; exit}' <<<"$text")
    return "${code:-1}"
}

do_join() {
    local code=0
    ended || code=$?
    [ "$code" -ne "$GONE" ] || say "pods were taken away more than --restarts=${SET[restarts]} times: launch/$SELF resume begins again"
    return "$code"
}

do_up() {
    needs_command up a
    do_wait
    do_copy
    do_install
    do_run
}

afresh() { # a JobSet whose pods were taken away is made anew
    do_stop
    do_wait
    do_run
}

do_resume() {
    needs_command resume the
    if [ -z "$(k_query "" get jobset "${SET[name]}" --ignore-not-found -o name)" ]; then do_up; fi
    resume_job afresh
}

do_stop() {
    k_run delete jobset "${SET[name]}" --ignore-not-found >&2
    k_run delete secret "${SET[name]}-env" --ignore-not-found >&2
}

do_fetch() {
    local to=${SET[to]:-fetched/${SET[name]}}
    need from
    [ ! -e "$to" ] || die 2 "$to exists already: name another folder with --to, or remove it"
    dry || { rm -rf "$to.half"; mkdir -p "$to.half"; }
    run gcloud storage cp --recursive "${SET[from]}" "$to.half" >&2 || { rm -rf "$to.half"; die 1 "copying ${SET[from]} failed"; }
    dry || mv "$to.half" "$to"
}

do_delete() {
    confirm "Delete the cluster ${SET[cluster]} ($(chips) chips of ${SET[type]}) and everything that runs on it?" ||
        die 2 "not deleted: the cluster ${SET[cluster]} goes on costing money; stop removes a JobSet alone"
    trap - EXIT
    run xpk cluster delete "--cluster=${SET[cluster]}" "--zone=${SET[zone]}" "--project=${SET[project]}" --force || die 1 "xpk did not delete the cluster: see above"
    say "${SET[cluster]} is deleted. Not touched, and costing until you remove them: buckets, images, disks, reservations. Clusters left:"
    run gcloud container clusters list "--project=${SET[project]}" || say "(they could not be listed)"
}

settings "$@"
case $VERB in
    create | wait | copy | install | up | check | run | resume | tail | status | join | stop | fetch | delete) ;;
    *) die 2 "there is no verb '$VERB': see launch/$SELF help" ;;
esac
need name project zone cluster type
[ -z "${SET[reservation]}" ] || [ "${SET[spot]}" = false ] || die 2 "--spot and --reservation exclude each other"
generation_of "${SET[type]}" >/dev/null
chips_of "${SET[type]}" >/dev/null
[ -n "${SET[topology]}" ] || topology_of "${SET[type]}" >/dev/null
case $VERB in create | delete) needs_tool xpk "pip install xpk, in an environment of its own" ;; esac
case $VERB in copy | install | up | check | run | resume) need image ;; esac
case $VERB in copy | install | up) needs_tool docker "install docker, or build elsewhere and give --image" ;; esac
case $VERB in copy | install | create | delete) ;; *) needs_tool kubectl "install kubectl and gke-gcloud-auth-plugin" ;; esac
"do_$VERB"
