#!/usr/bin/env bash
# Times whole training steps on one GPU: OUT=FOLDER launch/bench_gpu.sh [--SETTING VALUE ...]
#
# Runs `mimesis bench step` for the 0.8B and the 4B shape with random weights, one after the other,
# eight minutes at most together. It installs nothing and fetches nothing: the interpreter must have
# jax with the GPU and what the package imports. Under $OUT it writes step_MODEL.json (the figures),
# step_MODEL.txt (the table, and how far it came) and bench_gpu.txt (all tables, and the machine).
#
#   --model NAME    in place of the two, any of `mimesis bench step`; may be given several times.
#                   `--model tiny` tries the whole path on any machine in a few minutes
#   --seconds N     for everything (480)
#   --repeats N     of each kind of step in each of two passes, fewer when time runs out (10)
#   --goals N       goals of a step, --copies N copies of each; by default the model's own
#   --python PATH   interpreter (python3)
#
# Exit codes: 0 well; 1 a model failed or ran out of time, its .txt says how; 2 refused at once.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
MODELS=()
SECONDS_ALL=480
REPEATS=10
PYTHON=python3
SIZES=()

die() {
    printf 'bench_gpu.sh: %s\n' "$*" >&2
    exit 2
}

number() { # NAME VALUE
    [[ $2 =~ ^[1-9][0-9]*$ ]] || die "$1 $2: use a whole number of 1 or more"
}

while (($#)); do
    case $1 in
        -h | --help | help)
            sed -n '2,/^[^#]/{s/^# \{0,1\}//p}' "$0"
            exit 0
            ;;
        --model | --seconds | --repeats | --goals | --copies | --python)
            (($# > 1)) || die "$1 needs a value"
            ;;
        *) die "'$1' is no setting: see launch/bench_gpu.sh --help" ;;
    esac
    case $1 in
        --model) MODELS+=("$2") ;;
        --python) PYTHON=$2 ;;
        *) number "$1" "$2" ;;&
        --seconds) SECONDS_ALL=$2 ;;
        --repeats) REPEATS=$2 ;;
        --goals | --copies) SIZES+=("$1" "$2") ;;
    esac
    shift 2
done
[ "${#MODELS[@]}" -gt 0 ] || MODELS=(0.8b 4b)
[ -n "${OUT:-}" ] || die "OUT is not set: say where the tables go, OUT=FOLDER launch/bench_gpu.sh"
mkdir -p "$OUT" || die "OUT=$OUT cannot be made: choose another folder"
OUT=$(cd "$OUT" && pwd)
command -v "$PYTHON" >/dev/null || die "there is no $PYTHON: name an interpreter with --python PATH"

export PYTHONPATH=$ROOT${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
# jax takes three quarters of the memory unless it is told; the 4B step wants more of it.
export XLA_PYTHON_CLIENT_MEM_FRACTION=${XLA_PYTHON_CLIENT_MEM_FRACTION:-0.92}
cd "$ROOT"
missing=$("$PYTHON" -c 'import mimesis_jax.bench.step' 2>&1 | tail -n 1) || true
[ -z "$missing" ] || die "$PYTHON cannot run the bench ($missing): name another with --python PATH"

machine() {
    date -u +%Y-%m-%dT%H:%M:%SZ
    "$PYTHON" -c 'import jax; print(jax.__version__, *(d.device_kind for d in jax.devices()))' 2>&1 | tail -n 1
    if command -v nvidia-smi >/dev/null; then
        nvidia-smi --query-gpu=name,memory.total,driver_version,clocks.sm,power.draw --format=csv || true
    fi
}

weight() { # MODEL: of its share of the time
    case $1 in
        0.8b | tiny | small-hybrid) echo 2 ;;
        *) echo 3 ;;
    esac
}

kinds() { # MODEL: a step with CSD has all of a step without; one of the two must do for large ones
    case $1 in
        0.8b | tiny | small-hybrid) echo sft,grpo,csd ;;
        *) echo sft,csd ;;
    esac
}

end=$((SECONDS + SECONDS_ALL))
failed=0
machine | tee "$OUT/bench_gpu.txt"
for i in "${!MODELS[@]}"; do
    model=${MODELS[$i]}
    all=0
    for other in "${MODELS[@]:$i}"; do all=$((all + $(weight "$other"))); done
    share=$(((end - SECONDS) * $(weight "$model") / all))
    name=step_${model//[^A-Za-z0-9.-]/_}
    if [ "$share" -lt 5 ]; then
        echo "$model: no time is left of $SECONDS_ALL s" | tee "$OUT/$name.txt" >>"$OUT/bench_gpu.txt"
        failed=1
        continue
    fi
    code=0
    # The last fifth of a share is for what comes after the repetitions.
    timeout --signal=INT --kill-after=10 "$share" "$PYTHON" -m mimesis_jax.cli bench step \
        --model "$model" --kinds "$(kinds "$model")" --repeats "$REPEATS" \
        --budget $((share * 4 / 5)) "${SIZES[@]+"${SIZES[@]}"}" --json "$OUT/$name.json" \
        >/dev/null 2>"$OUT/$name.txt" || code=$?
    [ "$code" -eq 0 ] || {
        failed=1
        echo "$model: exit code $code within $share s (124: out of time)" >>"$OUT/$name.txt"
    }
    tee -a "$OUT/bench_gpu.txt" <"$OUT/$name.txt"
done
exit "$failed"
