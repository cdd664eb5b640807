"""A plan at the terminal, and two of them side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mimesis_jax.plan.faults import size

Json = dict[str, Any]
SHOWN = 12  # collectives of a table; all are in the json
BAR = 44  # characters of the memory's bar
GIB = 1 << 30


def gib(count: float) -> str:
    """Bytes as GiB."""
    return f"{count / GIB:.2f} GiB"


def seconds(value: float) -> str:
    """A time: 1.24 s, 38 ms, 210 us."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms")):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{1e6 * value:.3g} us"


def text(plan: Json) -> str:
    """The plan as lines of at most 100 characters or so."""
    config, machines = plan["config"], plan["topology"]
    title = f"{config['name']} on {machines['name']}: {machines['chips']} x {machines['chip']}"
    over = " ".join(f"--config.{key}={value}" for key, value in config["overrides"].items())
    lines = [title + (f", {over}" if over else ""), f"{plan['mode']}: {plan['label']}", ""]
    lines += _verdict(plan) + [""] + _memory(plan) + [""] + _phases(plan) + [""] + _times(plan)
    lines += [""] + _collectives(plan) + [""] + _hints(plan)
    return "\n".join(lines).rstrip() + "\n"


def _verdict(plan: Json) -> list[str]:
    fits = "fits" if plan["fits"] else "DOES NOT FIT"
    lines = [
        f"{fits}: peak {gib(plan['peak_bytes'])} of {gib(plan['limit_bytes'])} a device, "
        f"in {plan['peak_phase']}; arguments of the update {gib(plan['argument_bytes'])}"
    ]
    for one in plan["refused"]:
        figures = "no figures were given"
        if one["used_bytes"]:
            figures = f"{gib(one['used_bytes'])} of {gib(one['limit_bytes'])}"
        lines.append(f"refused by the compiler: {one['program']}, {figures}")
    return lines


def _memory(plan: Json) -> list[str]:
    top = max(plan["peak_bytes"], plan["limit_bytes"])
    lines = [f"memory of a device in {plan['peak_phase']}"]
    for kind, count in sorted(plan["hbm_by_kind"].items(), key=lambda item: -item[1]):
        if count:
            bar = "#" * max(1, round(BAR * count / top))
            lines.append(f"  {kind:<17}{gib(count):>12}  {bar}")
    limit = " " * BAR
    place = min(BAR - 1, round(BAR * plan["limit_bytes"] / top) - 1)
    whole = "=" * max(1, round(BAR * plan["peak_bytes"] / top))
    bar = f"{whole:<{BAR}}" if whole else limit
    bar = bar[:place] + "|" + bar[place + 1 :]
    lines.append(f"  {'together':<17}{gib(plan['peak_bytes']):>12}  {bar.rstrip()} limit at |")
    return lines


def _phases(plan: Json) -> list[str]:
    lines = ["phases of a step           peak a device   from"]
    for phase in plan["phases"]:
        over = "  over the limit" if phase["peak_bytes"] > plan["limit_bytes"] else ""
        lines.append(f"  {phase['name']:<24}{gib(phase['peak_bytes']):>14}   {phase['from']}{over}")
    return lines


def _times(plan: Json) -> list[str]:
    lines = ["least time of a program   compute       hbm     links   bound     MFU at most"]
    for one in plan["programs"]:
        took = one["roofline_seconds"]
        times = "".join(f"{seconds(took[name]):>10}" for name in ("compute", "hbm", "links"))
        lines.append(
            f"  {one['name']:<21}{times}   {one['bound']:<8}{100 * one['mfu_upper']:>11.1f} %"
        )
    lines.append(
        f"update step: {seconds(plan['least_seconds'])} at least, bound by {plan['bound']}; "
        f"MFU at most {100 * plan['mfu_upper']:.1f} %, "
        f"at most {plan['tokens_per_s_upper']:,.0f} tokens/s; {plan['flops']:.3g} FLOPs"
    )
    for chair, rate in plan["decode_tokens_per_s_upper"].items():
        lines.append(f"decoding, {chair}: at most {rate:,.0f} tokens/s on all hosts together")
    return lines


def _collectives(plan: Json) -> list[str]:
    rows = [row for row in plan["collectives"] if row["bytes_per_step"]]
    lines = ["sent by a device in a run of a program, largest first"]
    for row in rows[:SHOWN]:
        lines.append(
            f"  {row['program']:<14}{row['operation']:<15}{row['axis']:<12}"
            f"{size(row['sent_bytes']):>9} x {row['times']:<6}{size(row['bytes_per_step']):>9}  "
            f"{row['source']}"
        )
    if len(rows) > SHOWN:
        lines.append(f"  and {len(rows) - SHOWN} smaller ones (--json has all)")
    return lines if rows else ["nothing is sent between devices"]


def _hints(plan: Json) -> list[str]:
    if not plan["hints"]:
        return ["no usual fault was found"]
    return ["what stands out"] + [f"  {row['program']}: {row['text']}" for row in plan["hints"]]


# --- two plans --------------------------------------------------------------------------------

FIGURES = (
    ("peak_bytes", gib), ("argument_bytes", gib), ("limit_bytes", gib), ("flops", "{:.3g}".format),
    ("least_seconds", seconds), ("tokens_per_s_upper", "{:,.0f}".format),
    ("mfu_upper", "{:.3f}".format),
)  # fmt: skip


def compared(first: Json, second: Json) -> str:
    """Two plans figure by figure, with the ratio, and what only one of them sends."""
    names = [f"{one['config']['name']} on {one['topology']['name']}" for one in (first, second)]
    lines = [f"A: {names[0]} ({first['mode']})", f"B: {names[1]} ({second['mode']})", ""]
    lines += [f"  {change}" for change in _changed(first["config"], second["config"])]
    lines.append(f"{'':<24}{'A':>16}{'B':>16}    B / A")
    for name, form in FIGURES:
        lines.append(_row(name, first[name], second[name], form))
    lines.append(f"{'fits':<24}{first['fits']!s:>16}{second['fits']!s:>16}")
    lines.append(f"{'bound':<24}{first['bound']:>16}{second['bound']:>16}")
    for kind in dict.fromkeys([*first["hbm_by_kind"], *second["hbm_by_kind"]]):
        pair = [one["hbm_by_kind"].get(kind, 0) for one in (first, second)]
        if any(pair):
            lines.append(_row(kind, pair[0], pair[1], gib))
    for name in ("compute", "hbm", "links"):
        pair = [one["roofline_seconds"][name] for one in (first, second)]
        lines.append(_row(f"seconds of {name}", pair[0], pair[1], seconds))
    lines += _traffic(first, second)
    return "\n".join(lines) + "\n"


def _row(name: str, a: float, b: float, form) -> str:
    ratio = f"{b / a:9.2f}" if a else ""
    return f"{name:<24}{form(a):>16}{form(b):>16}{ratio}"


def _changed(a: Json, b: Json) -> list[str]:
    keys = sorted(a["overrides"].keys() | b["overrides"].keys())
    pairs = [(key, a["overrides"].get(key), b["overrides"].get(key)) for key in keys]
    return [
        f"{key}: {one or 'as in the file'} -> {two or 'as in the file'}"
        for key, one, two in pairs
        if one != two
    ]


def _traffic(first: Json, second: Json) -> list[str]:
    """Collectives by operation, axis and line whose bytes differ by a tenth or more."""
    tables = [_by_place(one["collectives"]) for one in (first, second)]
    lines = []
    for place in dict.fromkeys([*tables[0], *tables[1]]):
        a, b = (table.get(place, 0) for table in tables)
        if max(a, b) >= 1 << 20 and abs(a - b) >= 0.1 * max(a, b):
            lines.append(f"  {' '.join(place):<64}{size(a):>9}{size(b):>12}")
    return ["", "sent by a device where it differs", *lines] if lines else []


def _by_place(rows: Sequence[Json]) -> dict[tuple[str, ...], int]:
    found: dict[tuple[str, ...], int] = {}
    for row in rows:
        place = (row["program"], row["operation"], row["axis"], row["source"])
        found[place] = found.get(place, 0) + row["bytes_per_step"]
    return found
