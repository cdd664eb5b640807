#!/usr/bin/env bash
# What the launchers share: settings, the words of the command line, refusals, dry runs, questions.
#
# A launcher declares its settings with `option`, calls `settings "$@"` and gets SET[name], VERB and
# COMMAND (the words after --). Values come from flags, then from the file given by --settings, then
# from the defaults. The file is read as NAME=VALUE lines and never executed.
#
# Exit codes: 0 well; 1 a step of the launcher failed; 2 refused before anything was done; 3 a worker
# is missing or differs from the others; 75 the capacity was taken away; `join` and `resume` give the
# exit code of the worker's command.
set -euo pipefail

if [ "${BASH_VERSINFO[0]}" -lt 4 ]; then
    echo "bash $BASH_VERSION is too old for the launchers: 4 or newer is needed (brew install bash)" >&2
    exit 2
fi

LAUNCH=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(dirname "$LAUNCH")
SELF=${0##*/}
exec 3>&1 # dry runs print their commands here, from inside $(...) too

declare -A SET=() DEFAULT=() PATTERN=() ABOUT=() FROM=()
ORDER=()
COMMAND=()
VERB=""
# shellcheck disable=SC2034 # the launchers use it
GONE=75

say() { printf '%s\n' "$*" >&2; }

die() { # CODE TEXT...
    local code=$1
    shift
    say "$SELF: $*"
    exit "$code"
}

# --- settings -------------------------------------------------------------------------------------

option() { # NAME DEFAULT PATTERN TEXT: PATTERN "flag" is a switch; TEXT says what would be right
    ORDER+=("$1")
    DEFAULT[$1]=$2 PATTERN[$1]=$3 ABOUT[$1]=$4
}

common_options() {
    option name "" '[a-z]([-a-z0-9]{0,38}[a-z0-9])?' \
        "names the machines, the folder and the job: lower-case letters, digits and hyphens, a letter first, at most 40"
    option settings "" '.+' "a file of NAME=VALUE lines with any of these settings"
    option dir mimesis '[A-Za-z0-9_][A-Za-z0-9_./-]*' "folder on the workers, in the home folder there"
    option extra tpu '(tpu|cuda|)' "the extra that is installed: tpu, cuda or nothing"
    option python "" '[A-Za-z0-9_./-]*' "interpreter on the workers, 3.11 or newer; by default the newest there"
    option env-file "" '.+' "file of NAME=VALUE lines with secrets, mode 600; copied, never shown"
    option poll 60 '[0-9]+' "seconds between two looks at a state"
    option patience 86400 '[0-9]+' "seconds to wait for machines"
    option attempts 20 '[0-9]+' "how often resume begins again"
    option lines 40 '[0-9]+' "lines of the log that tail shows"
    option follow false flag "tail goes on until the command ends"
    option worker 0 '[0-9]+' "the worker that tail and fetch ask"
    option from runs '[A-Za-z0-9_][A-Za-z0-9_./-]*' "folder that fetch brings, relative to DIR/NAME on the worker"
    option to "" '.+' "folder here that fetch makes; by default fetched/NAME"
    option on-failure ask '(ask|keep|delete)' "what becomes of paid machines after a failure: ask, keep or delete"
    option local-out false flag "resume although --out lies on a disk that is lost with the machine"
    option yes false flag "answer every question with yes"
    option dry-run false flag "print every command, run none"
}

usage() {
    sed -n '2,/^[^#]/{/shellcheck/d;s/^# \{0,1\}//p}' "$0"
    printf '\nSettings (flags, or NAME=VALUE lines of the file given by --settings):\n'
    local name
    for name in "${ORDER[@]}"; do
        printf '  --%-16s %s%s\n' "$name" "${ABOUT[$name]}" "${DEFAULT[$name]:+ (${DEFAULT[$name]})}"
    done
}

put() { # NAME VALUE WHERE: takes a value; the last flag counts, and any flag before the file
    local name=$1 value=$2 where=$3 pattern
    [ -n "${PATTERN[$name]+x}" ] ||
        die 2 "$where: there is no setting '$name'; there are: ${ORDER[*]}"
    pattern=${PATTERN[$name]}
    [ "$pattern" != flag ] || pattern='(true|false)'
    [[ $value =~ ^($pattern)$ ]] || die 2 "$where: $name='$value' is not possible: ${ABOUT[$name]}"
    [ "$where" = "the command line" ] || [ -z "${FROM[$name]+x}" ] || return 0
    SET[$name]=$value FROM[$name]=$where
}

settings() { # the words of the command line
    case ${1:-} in "" | -h | --help | help) usage; exit 0 ;; esac
    VERB=$1
    shift
    local name
    while (($#)); do
        case $1 in
            --) shift; COMMAND=("$@"); break ;;
            --help) usage; exit 0 ;;
            --*=*) name=${1%%=*}; put "${name#--}" "${1#*=}" "the command line"; shift ;;
            --*)
                name=${1#--}
                if [ "${PATTERN[$name]:-}" = flag ]; then
                    put "$name" true "the command line"
                    shift
                else
                    (($# > 1)) || die 2 "--$name needs a value"
                    put "$name" "$2" "the command line"
                    shift 2
                fi
                ;;
            *) die 2 "'$1' is not a setting: settings begin with --, the command comes after --" ;;
        esac
    done
    [ -z "${SET[settings]:-}" ] || from_file "${SET[settings]}"
    for name in "${ORDER[@]}"; do
        [ -n "${FROM[$name]+x}" ] || SET[$name]=${DEFAULT[$name]}
    done
    guard_secrets
}

from_file() { # PATH
    [ -r "$1" ] || die 2 "--settings=$1: there is no such file that can be read"
    local line number=0
    while IFS= read -r line || [ -n "$line" ]; do
        number=$((number + 1))
        [[ $line =~ ^[[:space:]]*(#.*)?$ ]] && continue
        [[ $line =~ ^[[:space:]]*([a-z-]+)[[:space:]]*=[[:space:]]*(.*[^[:space:]])[[:space:]]*$ ]] ||
            die 2 "$1:$number: a line is NAME=VALUE or begins with #"
        [ "${BASH_REMATCH[1]}" != settings ] || die 2 "$1:$number: a settings file names no other one"
        put "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}" "$1:$number"
    done <"$1"
}

need() { # NAME...: settings that a verb cannot do without
    local name
    for name in "$@"; do
        [ -n "${SET[$name]}" ] || die 2 "$VERB needs --$name: ${ABOUT[$name]}"
    done
}

guard_secrets() { # a secret among the words would be seen by everybody on the machines, and logged
    local word number=0
    for word in "${COMMAND[@]+"${COMMAND[@]}"}"; do
        number=$((number + 1))
        if [[ ${word^^} =~ (TOKEN|SECRET|PASSWORD|PASSWD|API[-_]?KEY|CREDENTIALS?)= ]] ||
            [[ $word =~ (^|[=:[:space:]])(hf_|sk-|ghp_|AIza|ya29\.)[A-Za-z0-9_-]{16,} ]] || [[ $word == *"PRIVATE KEY"* ]]; then
            die 2 "word $number of the command looks like a secret: put NAME=VALUE into a file of mode 600" \
                "and give it with --env-file"
        fi
    done
    local path=${SET[env-file]:-} mode
    [ -n "$path" ] || return 0
    [ -r "$path" ] || die 2 "--env-file=$path: there is no such file that can be read"
    mode=$(stat -c %a "$path" 2>/dev/null || stat -f %Lp "$path")
    [[ $mode =~ 00$ ]] || die 2 "--env-file=$path has mode $mode, others can read it: chmod 600 $path"
}

# --- running, asking, failing ---------------------------------------------------------------------

dry() { [ "${SET[dry-run]}" = true ]; }

show() {
    local line
    printf -v line '%q ' "$@"
    if dry; then printf '%s\n' "${line% }" >&3; else say "+ ${line% }"; fi
}

run() { # COMMAND...: shows it and, unless this is a dry run, runs it
    show "$@"
    dry || "$@"
}

query() { # ANSWER COMMAND...: what the command prints; in a dry run ANSWER
    local answer=$1
    shift
    if dry; then
        show "$@"
        [ -z "$answer" ] || printf '%s\n' "$answer"
    else
        "$@"
    fi
}

pause() { dry || sleep "${SET[poll]}"; }

confirm() { # QUESTION: yes or no; where nobody can be asked only --yes is yes
    local answer
    if dry || [ "${SET[yes]}" = true ]; then return 0; fi
    if [ ! -t 0 ]; then
        say "$SELF: $1 Nobody is there to answer: give --yes for yes."
        return 1
    fi
    read -r -p "$1 [y/N] " answer
    [[ $answer =~ ^[yY] ]]
}

needs_tool() { # NAME WHERE
    dry || command -v "$1" >/dev/null || die 2 "$1 is not on the path: $2"
}

needs_command() { # VERB ARTICLE
    [ "${#COMMAND[@]}" -gt 0 ] || die 2 "$1 needs $2 command: $SELF $1 ... -- mimesis train --config ..."
}

resume_job() { # AGAIN: to the end of a job that `ended` waits for; AGAIN hands it in when it was taken away
    local attempt=0 code
    while :; do
        code=0
        ended || code=$?
        [ "$code" -eq "$GONE" ] || return "$code"
        attempt=$((attempt + 1))
        [ "$attempt" -le "${SET[attempts]}" ] || die "$GONE" "taken away ${SET[attempts]} times: raise --attempts to go on"
        "$1"
    done
}

watch_failure() { # WHAT: from now on a failure says that WHAT goes on costing, and asks about it
    WHAT=$1
    trap after_failure EXIT
}

after_failure() {
    local code=$?
    trap - EXIT
    if [ "$code" -ne 0 ] && [ "$code" -ne 2 ] && ! dry; then
        say "$SELF: $VERB ended with $code. $WHAT, if it was made, goes on costing money until it is deleted."
        if [ "${SET[on-failure]}" = delete ] ||
            { [ "${SET[on-failure]}" = ask ] && [ -t 0 ] && confirm "Delete it now?"; }; then
            SET[yes]=true
            (do_delete) || say "$SELF: deleting failed, see above"
        else
            say "$SELF: to delete it: launch/$SELF delete$(same_settings)"
        fi
    fi
    exit "$code"
}

same_settings() { # the settings that were given, as words
    local name
    for name in "${ORDER[@]}"; do
        [ -n "${FROM[$name]+x}" ] && [ "${FROM[$name]}" = "the command line" ] || continue
        case $name in yes | dry-run | on-failure | local-out | follow) continue ;; esac
        printf ' --%s=%q' "$name" "${SET[$name]}"
    done
}

# --- what is copied -------------------------------------------------------------------------------

archive() { # PATH: the working tree's tracked files, with a list of their hashes, as a tar
    local out=$1 files
    git -C "$ROOT" rev-parse --show-toplevel >/dev/null 2>&1 ||
        die 2 "$ROOT is not a git checkout: what is copied are the files that git tracks"
    files=$(mktemp -d)
    (
        cd "$ROOT"
        git ls-files -z | while IFS= read -r -d '' tracked; do [ ! -f "$tracked" ] || printf '%s\0' "$tracked"; done \
            >"$files/names"
        xargs -0 sha256sum <"$files/names" >"$files/.launch-files"
        tar -czf "$out" --null -C "$ROOT" -T "$files/names" -C "$files" .launch-files
    )
    say "copying $(tr -cd '\0' <"$files/names" | wc -c) files, $(($(wc -c <"$out") / 1024)) KiB," \
        "revision $(git -C "$ROOT" rev-parse --short HEAD)$(git -C "$ROOT" diff --quiet HEAD || echo ' and changes')," \
        "hash $(sha256sum <"$files/.launch-files" | cut -c1-12)"
    rm -rf "$files"
}

hand_over() { # PUSH: the code, and the secrets' file where there is one, by PUSH PATH
    local folder tarball code=0
    folder=$(mktemp -d)
    tarball=$folder/mimesis-${SET[name]}.tar.gz
    if dry; then show tar -czf "$tarball" "(the files that git tracks, and their hashes)"; else archive "$tarball"; fi
    "$1" "$tarball" || code=$?
    if [ "$code" -eq 0 ] && [ -n "${SET[env-file]}" ]; then
        install -m 600 "${SET[env-file]}" "$folder/mimesis-${SET[name]}.env"
        "$1" "$folder/mimesis-${SET[name]}.env" || code=$?
    fi
    rm -rf "$folder"
    [ "$code" -eq 0 ] || die 1 "copying failed with $code"
}
