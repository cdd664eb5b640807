#!/usr/bin/env bash
# The verbs that every fleet of machines has, whatever brought the machines: copy to delete.
#
# A launcher that uses this file defines
#   workers           prints how many workers there are to be
#   on_all COMMAND    runs one shell command on every worker at once, prints what they print
#   on_one N COMMAND  the same on worker N
#   push FILE         copies a file into the home folder of every worker
#   pull N FILE TO    copies a file from the home folder of worker N
#   machines          prints none, waiting, ready, gone (taken away), failed or unknown
#   do_create, do_wait (75 where the machines are taken away meanwhile), do_delete, discard
# and gets do_copy, do_install, do_check, do_run, do_status, do_tail, do_join, do_stop, do_fetch,
# do_resume and do_up.

LINES_HEARD=() # the @worker lines of the last `gather`

base() { echo "${SET[dir]}/${SET[name]}"; }

remote() { # VERB WORDS...: the shell command that calls worker.sh on a worker
    local line
    printf -v line ' %q' "$@"
    echo "bash $(base)/code/launch/worker.sh$line"
}

gather() { # COMMAND: runs it everywhere; 0, or 3 if a worker is missing, or the code of the first failed
    local want text code=0 bad=0 line seen
    want=$(workers)
    if dry; then
        on_all "$1"
        return
    fi
    text=$(on_all "$1") || code=$?
    mapfile -t LINES_HEARD < <(printf '%s\n' "$text" | sed -n 's/^.*\(@worker host=\)/\1/p')
    printf '%s\n' "$text" | sed '/@worker host=/d; /^$/d' >&2
    seen=$(printf '%s\n' "${LINES_HEARD[@]+"${LINES_HEARD[@]}"}" | awk '{print $2}' | sort -u | grep -c . || true)
    for line in "${LINES_HEARD[@]+"${LINES_HEARD[@]}"}"; do
        if [ "$(field code "$line")" != 0 ]; then
            say "worker $(field host "$line"): $(field verb "$line") failed with $(field code "$line")"
            [ "$bad" -ne 0 ] || bad=$(field code "$line")
        fi
    done
    if [ "$seen" -ne "$want" ]; then
        say "$seen of $want workers answered:$(printf ' %s' "${LINES_HEARD[@]+"${LINES_HEARD[@]}"}" |
            grep -o 'host=[^ ]*' | sort -u | sed 's/host=/ /' | tr -d '\n')"
        return 3
    fi
    [ "$bad" -eq 0 ] || return "$bad"
    return "$code"
}

field() { # KEY LINE
    local word
    for word in $2; do
        [[ $word != "$1="* ]] || { echo "${word#*=}"; return; }
    done
}

everywhere() { # VERB WORDS...: worker.sh on every worker, or the end with a reason
    local code=0
    gather "$(remote "$@")" || code=$?
    [ "$code" -eq 0 ] || die "$code" "$1 did not succeed on every worker, see above"
}

# --- verbs ----------------------------------------------------------------------------------------

do_copy() {
    hand_over push
    gather "rm -rf $(base)/new && mkdir -p $(base)/new && tar -xzf mimesis-${SET[name]}.tar.gz -C $(base)/new && bash $(base)/new/launch/worker.sh place" ||
        die "$?" "placing the code did not succeed on every worker, see above"
}

do_install() { everywhere install "${SET[extra]:-none}" ${SET[python]:+"${SET[python]}"}; }

do_check() { # before training: nobody missing, everybody the same
    local code=0
    gather "$(remote check)" || code=$?
    if dry; then return; fi
    printf '%s\n' "${LINES_HEARD[@]+"${LINES_HEARD[@]}"}" | bash "$LAUNCH/worker.sh" compare "$(workers)" || code=3
    [ "$code" -eq 0 ] || die "$code" "the workers are not fit to start: mend what is named above (copy and install make them equal)"
    printf '%s\n' "${LINES_HEARD[@]}"
}

do_run() {
    needs_command run a
    do_check
    everywhere start "${COMMAND[@]}"
    say "started on $(workers) workers; next: launch/$SELF tail or join$(same_settings)"
}

do_status() {
    local code=0
    say "machines: $(machines)"
    gather "$(remote status)" || code=$?
    dry || printf '%s\n' "${LINES_HEARD[@]+"${LINES_HEARD[@]}"}"
    return "$code"
}

do_tail() { on_one "${SET[worker]}" "$(remote tail_log "${SET[lines]}" "${SET[follow]}")"; }

do_stop() { everywhere stop 60; }

do_fetch() {
    local to=${SET[to]:-fetched/${SET[name]}} file=mimesis-${SET[name]}-fetch.tar.gz half
    [ ! -e "$to" ] || die 2 "$to exists already: name another folder with --to, or remove it"
    dry || mkdir -p "$(dirname "$to")"
    on_one "${SET[worker]}" "$(remote pack "${SET[from]}")" || die 1 "worker ${SET[worker]} could not pack ${SET[from]}"
    half=$to.half
    dry || { rm -rf "$half"; mkdir "$half"; }
    pull "${SET[worker]}" "$file" "$half/$file" || { rm -rf "$half"; die 1 "copying from worker ${SET[worker]} failed"; }
    if dry; then return; fi
    tar -xzf "$half/$file" -C "$half" || { rm -rf "$half"; die 1 "what came from worker ${SET[worker]} is no whole archive"; }
    rm "$half/$file"
    mv "$half" "$to"
    say "fetched into $to"
}

# --- waiting for the command, and beginning again -------------------------------------------------

tally() { # from the status lines: ALL (none, running, done, failed, lost, mixed), WORST, BAD (hosts)
    local line state
    declare -A count=([none]=0 [running]=0 [done]=0 [failed]=0 [lost]=0)
    WORST=0 BAD=""
    for line in "${LINES_HEARD[@]}"; do
        state=$(field state "$line")
        if [ "$state" = "done" ] && [ "$(field exit "$line")" != 0 ]; then
            state=failed
            [ "$WORST" -ne 0 ] || WORST=$(field exit "$line")
            BAD+=" $(field host "$line") ($(field exit "$line"))"
        fi
        count[$state]=$((count[$state] + 1))
    done
    ALL=mixed
    for state in none running "done" lost; do
        [ "${count[$state]}" -ne "${#LINES_HEARD[@]}" ] || ALL=$state
    done
    if [ "${count[none]}" -gt 0 ] && [ "$ALL" = mixed ]; then ALL=partial; fi
    if [ "${count[failed]}" -gt 0 ]; then ALL=failed; fi
    # A machine that was restarted makes the others fail: that is the cause, not their failure.
    if [ "${count[lost]}" -gt 0 ]; then ALL=lost; fi
}

known_machines() { # the state, once it can be told: a laptop's network may be away for a while
    local is i
    for i in $(seq 60); do
        is=$(machines)
        [ "$is" = unknown ] || break
        say "(try $i of 60)"
        pause
    done
    echo "$is"
}

follow() { # until the command has ended on every worker; its code, or 75 where it was taken away
    local missed=0 code
    if dry; then
        gather "$(remote status)"
        return
    fi
    while :; do
        code=0
        gather "$(remote status)" || code=$?
        if [ "$code" -ne 0 ]; then
            [ "$(known_machines)" = ready ] || return "$GONE"
            missed=$((missed + 1))
            [ "$missed" -lt 3 ] || die 3 "the machines are there but not every worker answers, three times in a row"
            pause
            continue
        fi
        missed=0
        tally
        case $ALL in
            running | mixed) pause ;;
            done) say "the command ended well on every worker"; return 0 ;;
            lost) say "a worker started anew and lost its command"; return "$GONE" ;;
            none | partial) die 3 "the command was not started on every worker: $SELF run starts it" ;;
            failed)
                # One worker taken away makes the others fail: so look at the machines once more.
                pause
                [ "$(known_machines)" = ready ] || return "$GONE"
                say "failed on:$BAD"
                return "$WORST"
                ;;
        esac
    done
}

end_well_or_ask() { # CODE: after `follow`; others may still wait for the one that failed
    if [ "$1" -ne 0 ] && [ "$1" -ne "$GONE" ] && confirm "The other workers may still run. Stop them?"; then
        (do_stop) || true
    fi
    return "$1"
}

do_join() {
    local code=0
    follow || code=$?
    if [ "$code" -eq "$GONE" ]; then die "$GONE" "the machines were taken away: launch/$SELF resume begins again"; fi
    end_well_or_ask "$code"
}

do_up() { # everything up to the running command
    needs_command up a
    do_create
    do_wait
    do_copy
    do_install
    do_run
}

lasting_out() { # what a preempted machine wrote to its own disk is gone with it
    local word before=""
    [ "${SET[local-out]}" = false ] || return 0
    for word in "${COMMAND[@]}"; do
        case $before$word in
            --out/* | --out=/* | --outgs://* | --out=gs://*) return 0 ;;
        esac
        before=""
        [ "$word" != --out ] || before=--out
    done
    die 2 "resume needs --out on storage that outlives the machines and that all of them see (an absolute" \
        "path of a mount, or gs://...): without it every preemption begins at nothing. --local-out allows that"
}

do_resume() { # the command, to its end, through as many preemptions as --attempts allows
    local code
    needs_command resume the
    lasting_out
    while :; do
        revive
        code=0
        if dry; then
            do_copy; do_install; do_run
        else
            gather "$(remote status)" 2>/dev/null || code=$?
            if [ "$code" -eq 0 ]; then tally; else ALL=none; fi
            case $ALL in
                running | mixed | done) say "the command is there already: going on with it" ;;
                *)
                    [ "$ALL" = none ] || do_stop
                    do_copy
                    do_install
                    do_run
                    ;;
            esac
        fi
        code=0
        follow || code=$?
        [ "$code" -eq "$GONE" ] || break
        again
    done
    end_well_or_ask "$code"
}

revive() { # machines that can work, whatever was there before
    local is code
    while :; do
        is=$(known_machines)
        case $is in
            ready) return ;;
            gone | failed)
                say "machines: $is"
                discard
                do_create
                ;;
            none) do_create ;;
            unknown) die 1 "what became of ${SET[name]} cannot be told: see above" ;;
        esac
        code=0
        do_wait || code=$?
        [ "$code" -eq "$GONE" ] || return "$code"
        again
    done
}

TAKEN=0 # how often this resume lost its machines
again() {
    TAKEN=$((TAKEN + 1))
    [ "$TAKEN" -le "${SET[attempts]}" ] || die "$GONE" "taken away $TAKEN times: raise --attempts to go on"
    say "taken away (time $TAKEN); beginning again"
}
