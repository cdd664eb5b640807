#!/usr/bin/env bash
# TPU types by name: generation, chips, machines, the software that goes with them, the topology.
#
# v4-N, v5p-N and tpu7x-N count cores, two to a chip; v5litepod-N and v6e-N count chips. A machine of
# a slice has four chips; up to eight chips of v5e and v6e are one machine.
#
# An unknown type ends the launcher, but only outside $(...): launchers call generation_of and
# chips_of once by themselves before they use anything of this file.

generation_of() { # TYPE
    case $1 in
        v4-*) echo v4 ;;
        v5p-*) echo v5p ;;
        v5litepod-*) echo v5e ;;
        v6e-*) echo v6e ;;
        tpu7x-*) echo tpu7x ;;
        v5e-*) die 2 "type '$1': this back end calls it v5litepod-${1#*-}" ;;
        *) die 2 "type '$1' is unknown: use v4-N, v5p-N, v5litepod-N, v6e-N or tpu7x-N" ;;
    esac
}

chips_of() { # TYPE
    local n=${1##*-}
    case $(generation_of "$1") in
        v5e | v6e)
            case $n in 1 | 4 | 8 | 16 | 32 | 64 | 128 | 256) echo "$n" ;;
                *) die 2 "type '$1': there are 1, 4, 8, 16, 32, 64, 128 and 256 chips" ;;
            esac
            ;;
        *)
            [ $((n % 8)) -eq 0 ] && [ "$n" -gt 0 ] ||
                die 2 "type '$1' counts cores, two to a chip and four chips to a machine: use a multiple of 8"
            echo $((n / 2))
            ;;
    esac
}

hosts_of() { # TYPE: machines of one slice
    local chips
    chips=$(chips_of "$1")
    case $(generation_of "$1") in
        v5e | v6e) if [ "$chips" -le 8 ]; then echo 1; else echo $((chips / 4)); fi ;;
        *) echo $((chips / 4)) ;;
    esac
}

chips_per_host() { echo $(($(chips_of "$1") / $(hosts_of "$1"))); } # TYPE

runtime_of() { # TYPE
    case $(generation_of "$1") in
        v4) echo tpu-ubuntu2204-base ;;
        v5e) echo v2-alpha-tpuv5-lite ;;
        v5p) echo v2-alpha-tpuv5 ;;
        v6e) echo v2-alpha-tpuv6e ;;
    esac
}

topology_of() { # TYPE: how the chips of a slice lie, as GKE's node label has it
    case $(generation_of "$1")-$(chips_of "$1") in
        v5e-1 | v6e-1) echo 1x1 ;;
        v5e-4 | v6e-4) echo 2x2 ;;
        v5e-8 | v6e-8) echo 2x4 ;;
        v5e-16 | v6e-16) echo 4x4 ;;
        v5e-32 | v6e-32) echo 4x8 ;;
        v5e-64 | v6e-64) echo 8x8 ;;
        v5e-128 | v6e-128) echo 8x16 ;;
        v5e-256 | v6e-256) echo 16x16 ;;
        *-4) echo 2x2x1 ;;
        *-8) echo 2x2x2 ;;
        *-16) echo 2x2x4 ;;
        *-32) echo 2x4x4 ;;
        *-64) echo 4x4x4 ;;
        *-128) echo 4x4x8 ;;
        *-256) echo 4x8x8 ;;
        *-512) echo 8x8x8 ;;
        *) die 2 "the topology of type '$1' is not in the table: name it with --topology" ;;
    esac
}

label_of() { # TYPE: GKE's name of the accelerator
    case $(generation_of "$1") in
        v4) echo tpu-v4-podslice ;;
        v5e) echo tpu-v5-lite-podslice ;;
        v5p) echo tpu-v5p-slice ;;
        v6e) echo tpu-v6e-slice ;;
        tpu7x) echo tpu7x ;;
    esac
}
