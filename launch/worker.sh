#!/usr/bin/env bash
# What runs on a worker: place the code, install it, check, start in the background, status, stop.
#
# It lies in BASE/code/launch on every worker and works in BASE: code/ (what was copied), venv/ (its
# own environment), env (secrets, mode 600), log/, state/ (pid, exit code) and whatever the command
# writes. Each verb ends with one line that the launcher reads,
#
#     @worker host=NAME verb=VERB code=N key=value ...
#
# so a worker that says nothing is known to be missing. The exit code is never 255: ssh uses that
# for its own failures, and gcloud then runs the command a second time.
set -euo pipefail

LAUNCH=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
BASE=${MIMESIS_BASE:-$(dirname "$(dirname "$LAUNCH")")}
HOST=$(hostname)
FIELDS=""

fail() { # CODE TEXT...
    local code=$1
    shift
    printf '%s: %s\n' "$HOST" "$*" >&2
    exit "$code"
}

finish() {
    local code=$?
    [ "$code" -eq 255 ] && code=254
    printf '@worker host=%s verb=%s code=%s%s\n' "$HOST" "$VERB" "$code" "$FIELDS"
    exit "$code"
}

boot() { cat /proc/sys/kernel/random/boot_id 2>/dev/null || echo unknown; }

state() { # sets STATE (none, running, done, lost), EXIT and PID
    STATE=none EXIT="" PID=""
    local at=""
    if [ -s "$BASE/state/exit" ]; then
        STATE="done" EXIT=$(cat "$BASE/state/exit")
    elif [ -s "$BASE/state/pid" ]; then
        read -r PID at <"$BASE/state/pid"
        # A pid of before a reboot may belong to somebody else by now.
        if [ "$at" = "$(boot)" ] && kill -0 "$PID" 2>/dev/null; then STATE=running; else STATE=lost; fi
    fi
}

not_running() { # WHAT: refuses while the command runs
    state
    [ "$STATE" != running ] || fail 4 "cannot $1 while the command runs (pid $PID): stop it first"
}

place() { # the code was unpacked into BASE/new: it takes the place of BASE/code
    not_running "replace the code"
    rm -rf "$BASE/old"
    [ ! -e "$BASE/code" ] || mv "$BASE/code" "$BASE/old"
    mv "$BASE/new" "$BASE/code"
    rm -rf "$BASE/old"
    local secrets=$HOME/mimesis-${BASE##*/}.env
    if [ -e "$secrets" ]; then
        chmod 600 "$secrets"
        mv "$secrets" "$BASE/env"
    fi
    LAUNCH=$BASE/code/launch
    FIELDS=" hash=$(code_hash)"
}

code_hash() { # of the list of files and their hashes; "-changed" where the files are others by now
    local list="$BASE/code/.launch-files" sum
    [ -s "$list" ] || { echo none; return; }
    sum=$(sha256sum <"$list" | cut -c1-12)
    (cd "$BASE/code" && sha256sum --quiet --status -c .launch-files) || sum="$sum-changed"
    echo "$sum"
}

usable() { "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

environment() { # PYTHON: makes BASE/venv of an interpreter of 3.11 or newer
    local python
    for python in ${1:+"$1"} python3.12 python3.11 python3; do
        if command -v "$python" >/dev/null && usable "$python"; then
            "$python" -m venv --clear "$BASE/venv"
            return
        fi
        [ -z "$1" ] || fail 1 "python=$1 is not there, older than 3.11, or has no venv: name another"
    done
    # TPU images come with Python 3.10; uv brings a newer one into this folder and nowhere else.
    echo "$HOST: no Python of 3.11 or newer here, fetching one with uv" >&2
    if ! python3 -m pip install --quiet --target "$BASE/uv" uv >&2 ||
        ! PYTHONPATH="$BASE/uv" python3 -m uv venv --quiet --clear --seed --python 3.12 "$BASE/venv" >&2; then
        fail 1 "no Python of 3.11 or newer, and uv could not bring one:" \
            "install python3.11 and python3.11-venv on the workers, or name one with --python"
    fi
}

install() { # EXTRA PYTHON: BASE/venv with the package and its extra; nothing to do where it is there
    local extra=${1#none} want
    not_running install
    want="$extra $(sha256sum <"$BASE/code/pyproject.toml")"
    if [ "$(cat "$BASE/venv/.launch" 2>/dev/null || true)" != "$want" ]; then
        usable "$BASE/venv/bin/python" || environment "${2:-}"
        rm -f "$BASE/venv/.launch"
        "$BASE/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
            -e "$BASE/code${extra:+[$extra]}" >&2 || fail 1 "pip failed: its words are above"
        printf '%s\n' "$want" >"$BASE/venv/.launch"
    fi
    FIELDS=" python=$("$BASE/venv/bin/python" -c 'import platform; print(platform.python_version())')"
}

devices() { # how many accelerators the machine has, without starting JAX (which waits for all hosts)
    local found
    found=$(find /dev -maxdepth 1 -name 'accel[0-9]*' 2>/dev/null | wc -l)
    [ "$found" -gt 0 ] || found=$(find /dev/vfio -maxdepth 1 -name '[0-9]*' 2>/dev/null | wc -l)
    [ "$found" -gt 0 ] || found=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU' || true)
    echo "$found"
}

check() { # what has to be the same on every worker, and what is worth knowing
    local python="$BASE/venv/bin/python" versions
    [ -x "$python" ] || fail 1 "no environment here: install first"
    state
    versions=$("$python" - <<'PY'
import hashlib, importlib.metadata, platform

found = {d.metadata["Name"].lower().replace("_", "-"): d.version for d in importlib.metadata.distributions()}
listed = "\n".join(f"{name}=={version}" for name, version in sorted(found.items()))
told = {name: found.get(name, "none") for name in ("jax", "jaxlib", "libtpu")}
print(f"python={platform.python_version()}", *(f"{n}={v}" for n, v in told.items()),
      f"packages={hashlib.sha256(listed.encode()).hexdigest()[:12]}")
PY
    ) || fail 1 "the environment's python does not run: remove $BASE/venv and install again"
    FIELDS=" hash=$(code_hash) $versions devices=$(devices) state=$STATE"
    FIELDS+=" free_gib=$(df -Pk "$BASE" | awk 'NR == 2 {printf "%d", $4 / 1048576}')"
}

compare() { # COUNT: reads the lines of `check`; 3 where a worker is missing or differs
    awk -v want="$1" '
        $1 == "@worker" {
            split("", field)
            for (i = 2; i <= NF; i++) { at = index($i, "="); field[substr($i, 1, at - 1)] = substr($i, at + 1) }
            if (field["verb"] != "check") next
            if (!(field["host"] in seen)) { seen[field["host"]]; hosts++; names = names " " field["host"] }
            if (field["code"] != 0) { print "worker " field["host"] " failed its check (" field["code"] ")"; bad = 1; next }
            n = split("hash python jax libtpu packages devices", keys, " ")
            for (k = 1; k <= n; k++) {
                key = keys[k]; value = field[key]
                if (!((key, value) in who)) { kinds[key]++; values[key] = values[key] SUBSEP value }
                who[key, value] = who[key, value] " " field["host"]
            }
        }
        END {
            if (hosts + 0 != want) { print hosts + 0 " of " want " workers answered:" names; bad = 1 }
            for (k = 1; k <= n; k++) if (kinds[keys[k]] > 1) {
                key = keys[k]; text = "workers differ in " key ":"
                m = split(substr(values[key], 2), each, SUBSEP)
                for (j = 1; j <= m; j++) text = text (j > 1 ? ";" : "") " " each[j] " on" who[key, each[j]]
                print text; bad = 1
            }
            exit bad ? 3 : 0
        }' >&2
}

within() { # COMMAND...: runs it in the environment, with the secrets, in BASE
    cd "$BASE"
    if [ -e "$BASE/env" ]; then
        set -a
        # shellcheck disable=SC1091
        . "$BASE/env"
        set +a
    fi
    PATH="$BASE/venv/bin:$PATH" exec "$@"
}

start() { # COMMAND...: in the background, its output in log/run.log, its exit code in state/exit
    not_running "start another"
    mkdir -p "$BASE/log" "$BASE/state"
    rm -f "$BASE/state/exit" "$BASE/state/pid"
    local line
    printf -v line ' %q' "$@"
    echo "$(date -u +%FT%TZ)$line" >>"$BASE/log/run.log"
    setsid nohup bash "$LAUNCH/worker.sh" hold "$@" >>"$BASE/log/run.log" 2>&1 </dev/null &
    for _ in $(seq 100); do
        [ -s "$BASE/state/pid" ] && return
        sleep 0.1
    done
    fail 1 "the command did not start within 10 s: see $BASE/log/run.log"
}

hold() { # COMMAND...: the background process of `start`
    # The exit code is kept when the group is told to end too: the handler lets bash live that long,
    # while the command itself gets the signal with its ordinary meaning.
    trap : TERM INT
    printf '%s %s\n' "$$" "$(boot)" >"$BASE/state/pid.new"
    mv "$BASE/state/pid.new" "$BASE/state/pid"
    local code=0
    (within "$@") & # in the background, so that `wait` can be taken up again after a signal
    while :; do
        code=0
        wait "$!" || code=$?
        kill -0 "$!" 2>/dev/null || break
    done
    printf '%s\n' "$code" >"$BASE/state/exit.new"
    mv "$BASE/state/exit.new" "$BASE/state/exit"
}

status() {
    state
    FIELDS=" state=$STATE"
    [ -z "$EXIT" ] || FIELDS+=" exit=$EXIT"
    if [ "$STATE" = running ] && [ -e "$BASE/log/run.log" ]; then
        FIELDS+=" quiet=$(($(date +%s) - $(stat -c %Y "$BASE/log/run.log")))s" # since its last word
    fi
}

stop() { # SECONDS: asks the command and all it started to end, and ends it after that time
    state
    if [ "$STATE" = running ]; then
        kill -TERM -- "-$PID"
        for _ in $(seq "$1"); do
            kill -0 "$PID" 2>/dev/null || break
            sleep 1
        done
        kill -KILL -- "-$PID" 2>/dev/null || true
        [ -s "$BASE/state/exit" ] || echo 137 >"$BASE/state/exit"
    fi
    status
}

tail_log() { # LINES FOLLOW: the last lines of the log; with FOLLOW until the command ends
    state
    [ -e "$BASE/log/run.log" ] || fail 1 "nothing was started here yet"
    if [ "$2" = true ] && [ "$STATE" = running ]; then
        tail -n "$1" --pid="$PID" -F "$BASE/log/run.log" 2>/dev/null
    else
        tail -n "$1" "$BASE/log/run.log"
    fi
}

pack() { # FOLDER: log/ and a folder of BASE into fetch.tar.gz, for `fetch`
    local name=$HOME/mimesis-${BASE##*/}-fetch.tar.gz
    cd "$BASE"
    [ -e "$1" ] || fail 1 "there is no $1 here: name the folder that the command wrote with --from"
    mkdir -p log
    tar -czf "$name.new" log "$1"
    mv "$name.new" "$name"
    FIELDS=" bytes=$(stat -c %s "$name")"
}

remove() { # everything that was copied, installed and written
    not_running "remove the folder"
    cd /
    rm -rf "$BASE" "$HOME/mimesis-${BASE##*/}"{.tar.gz,.env,-fetch.tar.gz}
}

VERB=${1:-}
shift || true
case $VERB in
    hold | within | compare) "$VERB" "$@" ;;
    place | install | check | start | status | stop | tail_log | pack | remove)
        trap finish EXIT
        "$VERB" "$@"
        ;;
    *)
        echo "worker.sh: unknown verb '$VERB'" >&2
        exit 2
        ;;
esac
