"""The command line: `mimesis demo | train | evaluate | evidence | replay | chat | data | ...`.

Each verb parses its words, reads the configuration and calls one function of a lower floor. Those
are imported when they are needed, so that --help answers at once.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shlex
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mimesis_jax
from mimesis_jax import about, bench, config
from mimesis_jax.plan import options
from mimesis_jax.runs import heap, processes, signals


class UsageError(ValueError):
    """Words on the command line that mean nothing; the message says what would."""


class BoundError(ValueError):
    """A bench that ran and found something slower than it may be; the message says what."""


def parser() -> argparse.ArgumentParser:
    """The verbs and their options."""
    top = argparse.ArgumentParser(
        prog="mimesis", description=mimesis_jax.__doc__, allow_abbrev=False
    )
    top.add_argument("--version", action="version", version=f"mimesis {mimesis_jax.__version__}")
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")

    demo = _verb(verbs, "demo", "the whole path, from nothing to a report", keys=True)
    demo.add_argument("--quick", action="store_true", help="few steps: proves the path only")
    demo.add_argument(
        "--out", type=Path, default=Path("runs/demo"), help="run folder (%(default)s)"
    )
    demo.add_argument("--config", default="demo", metavar="F", help="file, or name in configs/")
    _profile(demo)
    _processes(demo)

    for name, what in (("train", "one training stage"), ("evaluate", "measure what was trained")):
        verb = _verb(verbs, name, what, keys=True)
        verb.add_argument("--config", required=True, metavar="F", help="file, or name in configs/")
        verb.add_argument("--out", type=Path, help="run folder (runs/NAME of the configuration)")
        if name == "train":
            _profile(verb)
            _processes(verb)

    _evidence(_verb(verbs, "evidence", "an experiment over several seeds", keys=True))

    replay = _verb(verbs, "replay", "what is wrong with the batch that a run stopped at")
    replay.add_argument("run", type=Path, metavar="RUN", help="run folder")
    replay.add_argument("--step", type=int, metavar="N", help="of that step (the last one kept)")

    chat = _verb(verbs, "chat", "talk with what was trained")
    chat.add_argument("run", type=Path, nargs="?", metavar="RUN", help="folder of a finished run")
    chat.add_argument("--model", metavar="M", help="smollm2, a .gguf file or a model's folder")
    chat.add_argument("--as", dest="chair", choices=("agent", "user"),
                      help="the chair you take (agent; with --model user)")  # fmt: skip
    chat.add_argument("--goal", type=int, metavar="N", help="which goal of the run (0)")
    chat.add_argument("--system", metavar="TEXT", help="the system turn that the model reads")
    chat.add_argument("--family", metavar="NAME", help="chat family, if the model does not tell")
    chat.add_argument("--dtype", choices=("float32", "bfloat16"), help="of the model (its own)")
    chat.add_argument("--temperature", type=float, metavar="X", help="0, the default, is greedy")
    chat.add_argument("--limit", type=int, metavar="N", help="most tokens of a reply (512)")
    chat.add_argument("--length", type=int, metavar="N", help="tokens of the conversation (2048)")
    chat.add_argument("--thoughts", action="store_true", help="show the other's private thoughts")

    data = _verb(verbs, "data", "build a dataset, or show one")
    work = data.add_subparsers(dest="work", required=True, metavar="build|show")
    build = _verb(work, "build", "raw files into a dataset")
    build.add_argument("kind", metavar="KIND", help="thoughttrace, abcd, wildchat, lmsys, prism...")
    build.add_argument("source", nargs="+", metavar="SOURCE", help="its files")
    build.add_argument("--out", type=Path, required=True, help="dataset folder, new or empty")
    build.add_argument("--max-bad-share", type=float, default=0.01, metavar="X",
                       help="share of malformed rows that is still fine (%(default)s)")  # fmt: skip
    show = _verb(work, "show", "what a dataset holds")
    show.add_argument("path", type=Path, metavar="DATASET", help="its folder")

    convert = _verb(verbs, "convert", "checkpoints in and out")
    convert.add_argument("source", type=Path, metavar="SRC", help="folder or .gguf file")
    convert.add_argument("out", type=Path, metavar="DST", help="new folder")
    convert.add_argument("--to", choices=("ours", "hub"), help="form of DST (not that of SRC)")
    convert.add_argument("--dtype", choices=("float32", "bfloat16"), help="of DST (that of SRC)")
    convert.add_argument("--source", dest="origin", type=Path, metavar="HUB",
                         help="hub folder whose tokenizer and vision come along")  # fmt: skip
    convert.add_argument("--allow-nan", action="store_true", help="take weights that are NaN")
    inspect = _verb(verbs, "inspect", "what a checkpoint is")
    inspect.add_argument("path", type=Path, metavar="PATH", help="folder or .gguf file")

    report = _verb(verbs, "report", "a page about a run")
    report.add_argument("run", type=Path, metavar="RUN", help="run folder")

    forest = _verb(verbs, "forest", "draw how episodes are laid out for training")
    forest.add_argument("episodes", type=Path, metavar="EPISODES", help="run folder, or its file")
    forest.add_argument("--chair", choices=("agent", "user"), help="whose tokens are learned")
    forest.add_argument("--count", type=int, default=4, metavar="N", help="episodes (%(default)s)")
    forest.add_argument("--phase", metavar="NAME", help="only episodes of this phase of the run")
    forest.add_argument("--out", type=Path, metavar="F", help="the page (forest.html in the run)")

    options.add(_verb(verbs, "plan", "what a run needs on machines you do not hold", keys=True))

    measure = _verb(verbs, "bench", "measure speed and memory here")
    which = measure.add_subparsers(dest="name", required=True, metavar="NAME")
    for name, what in bench.names().items():
        # Its other words are its own, --help included, so that nothing heavy loads here.
        one = which.add_parser(name, help=what, add_help=False, allow_abbrev=False)
        one.add_argument("--json", type=Path, metavar="F", help="file for the figures")
    return top


def _evidence(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--config", required=True, metavar="F", help="file, or experiments/NAME")
    verb.add_argument("--seeds", type=int, default=5, metavar="N", help="0 to N - 1 (5)")
    verb.add_argument("--only", type=_whole_numbers, default=(), metavar="I,J",
                      help="work on these seeds; another machine may take the others")  # fmt: skip
    verb.add_argument("--workers", type=int, metavar="N",
                      help="processes that share the seeds (on CPUs: one a core)")  # fmt: skip
    verb.add_argument(
        "--out", type=Path, default=Path("runs/evidence"), help="folder (%(default)s)"
    )
    verb.add_argument("--start", type=Path, metavar="RUN",
                      help="models of a demo run, or of other evidence")  # fmt: skip


def _whole_numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no list of whole numbers: write 0,2,4"
        ) from None


def _verb(verbs, name: str, what: str, *, keys: bool = False) -> argparse.ArgumentParser:
    return verbs.add_parser(
        name,
        help=what,
        description=about.ABOUT[name].strip() + ("\n" + about.KEYS.rstrip() if keys else ""),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def _profile(verb: argparse.ArgumentParser) -> None:
    what = "trace that many warm steps into OUT/profile (3, or PHASE:3)"
    verb.add_argument("--profile", metavar="STEPS", help=what)


def _processes(verb: argparse.ArgumentParser) -> None:
    """Where the same command runs on several hosts; what is not given is found (processes.find)."""
    several = verb.add_argument_group("several hosts (docs/processes.md)")
    several.add_argument("--processes", type=int, metavar="N", help="how many; 1 works alone")
    several.add_argument("--process", type=int, metavar="I", help="which one this is, from 0")
    several.add_argument("--coordinator", metavar="HOST:PORT", help="process 0, and a free port")
    several.add_argument("--arrive", type=float, metavar="SECONDS",
                         help="all have to be there after (300)")  # fmt: skip


def overrides(words: Sequence[str]) -> dict[str, str]:
    """Dotted key -> text of words like --config.agent.steps=40. Raises UsageError for others."""
    found = {}
    for word in words:
        key, given, text = word.partition("=")
        if not key.startswith("--config.") or key == "--config.":
            raise UsageError(f"{word!r} means nothing here: see --help")
        if not given:
            raise UsageError(f"{word} has no value: write {word}=VALUE")
        found[key.removeprefix("--config.")] = text
    return found


def run(args: argparse.Namespace, words: Sequence[str]) -> None:
    """Does what the verb says; `words` are the --config.KEY=VALUE among the arguments."""
    if args.verb in ("demo", "train", "evaluate", "evidence"):
        _with_config(args, overrides(words))
        return
    if args.verb == "bench":
        _bench(args, words)
        return
    if args.verb == "plan":
        from mimesis_jax.plan import verb

        verb.run(args, overrides(words))
        return
    if words:
        raise UsageError(
            f"{words[0]!r} means nothing to {args.verb}: see mimesis {args.verb} --help"
        )
    if args.verb == "report":
        from mimesis_jax.report import page

        print(page.write(args.run))
    elif args.verb == "forest":
        from mimesis_jax.build import forest_view

        print(forest_view.draw(
            args.episodes, chair=args.chair, count=args.count, phase=args.phase, out=args.out
        ))  # fmt: skip
    elif args.verb == "replay":
        from mimesis_jax.build import replay

        print(replay.replay(args.run, args.step))
    elif args.verb == "chat":
        _chat(args)
    elif args.verb == "convert":
        from mimesis_jax.build import checkpoints

        print(checkpoints.convert(args.source, args.out, to=args.to, dtype=args.dtype,
                                  origin=args.origin, allow_nan=args.allow_nan))  # fmt: skip
    elif args.verb == "inspect":
        from mimesis_jax.build import checkpoints

        print(checkpoints.inspect(args.path))
    elif args.work == "build":
        from mimesis_jax.data import build as datasets

        source = args.source if len(args.source) > 1 else args.source[0]
        datasets.build(args.kind, source, args.out, max_bad_share=args.max_bad_share)
    else:
        from mimesis_jax.data import build as datasets

        print(datasets.describe(args.path))


def _with_config(args: argparse.Namespace, given: dict[str, str]) -> None:
    settings = config.read(args.config, given)  # a wrong key is told before anything heavy loads
    out = args.out or Path("runs") / config.find(args.config).stem
    args.out = out  # named if the run is interrupted
    place = _place(args)
    facts = {} if place is None else processes.facts(settings, verb=args.verb, out=out)
    with processes.joined(place, facts, _patience(args)):
        from mimesis_jax.runs import profiles

        with signals.heard(), profiles.asked(getattr(args, "profile", None)):
            _begin(args, settings, out)


def _place(args: argparse.Namespace) -> processes.Place | None:
    """Which process of how many this is; None where it works alone, as most verbs do."""
    if args.verb not in ("demo", "train"):
        return None
    return processes.find(args.processes, args.process, args.coordinator)


def _patience(args: argparse.Namespace) -> processes.Settings:
    arrive = getattr(args, "arrive", None)
    return processes.Settings() if arrive is None else processes.Settings(arrive=arrive)


def _begin(args: argparse.Namespace, settings: Any, out: Path) -> None:
    from mimesis_jax.build import verbs

    if args.verb == "demo":
        verbs.demo(settings, out, quick=args.quick)
        for name in ("summary.json", "report.html"):
            if (out / name).exists():
                print(out / name)
    elif args.verb == "evidence":
        shared = {"only": args.only, "workers": args.workers}
        found = verbs.evidence(settings, out, seeds=args.seeds, start=args.start, **shared)
        print(json.dumps(found, indent=2))
        print(out / "evidence.html")
    else:
        work = verbs.train if args.verb == "train" else verbs.evaluate
        print(json.dumps(config.plain(work(settings, out)), indent=2))


def _chat(args: argparse.Namespace) -> None:
    """A conversation with a run's model, or with a published one."""
    own = ("system", "family", "dtype", "temperature", "limit", "length")
    given = {name: getattr(args, name) for name in own if getattr(args, name) is not None}
    if (args.run is None) == (args.model is None):
        raise UsageError("chat takes either RUN, the folder of a run, or --model: see --help")
    if args.model is None:
        if given:
            raise UsageError(f"--{next(iter(given))} is for --model only, RUN has its own")
        from mimesis_jax.build import verbs

        args.chair = args.chair or "agent"
        verbs.chat(args.run, chair=args.chair, goal=args.goal or 0, thoughts=args.thoughts)
        return
    if args.goal is not None:
        raise UsageError("--goal is for a RUN only: a published model has no cases")
    from mimesis_jax.build import model_talk

    settings = model_talk.Settings(chair=args.chair or "user", thoughts=args.thoughts, **given)
    model_talk.chat(args.model, settings)


def _bench(args: argparse.Namespace, words: Sequence[str]) -> None:
    """Runs a bench with the words that are its own, then writes what it gives."""
    if args.json is not None and not args.json.resolve().parent.is_dir():
        raise UsageError(
            f"--json {args.json}: there is no folder {args.json.parent}, make it first"
        )
    from mimesis_jax.runs import disk

    figures = importlib.import_module(f"mimesis_jax.bench.{args.name}").run(words)
    if args.json is not None:
        disk.write(args.json, figures)
    print(json.dumps(disk.plain(figures), indent=2))
    if slow := figures.get("past_bound"):
        raise BoundError("; ".join(slow))


def expected(error: BaseException) -> bool:
    """Whether the error is somebody's input or machine, so that its message is enough.

    Such are errors about a named file, those of the project's own classes, and those that a `raise`
    of the project said; a ValueError from inside another package is a fault of ours.
    """
    if not isinstance(error, (OSError, ValueError)):
        return False
    if type(error).__module__.split(".")[0] == "mimesis_jax":
        return True
    if isinstance(error, OSError) and error.filename is not None:
        return True
    last = traceback.extract_tb(error.__traceback__)[-1]
    ours = Path(last.filename).is_relative_to(Path(__file__).parent)
    return ours and (last.line or "").startswith("raise")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line; gives the exit status.

    0: done. 2: the words, the input or the machine are at fault, one line says how. 1: a traceback,
    the fault is ours. 130: interrupted. 143: terminated (SIGTERM), after the state was saved where
    there was time. Of several processes: 75, another one is gone or never came; 3, they are not
    started alike. MIMESIS_TRACE=1 in the environment shows every traceback.
    """
    if argv is None:  # a process of its own
        heap.begin()
    words = list(sys.argv[1:] if argv is None else argv)
    args, rest = parser().parse_known_args(words)
    status = _status(args, words, rest)
    processes.quit_if_broken(status)
    return status


def _status(args: argparse.Namespace, words: Sequence[str], rest: Sequence[str]) -> int:
    try:
        run(args, rest)
    except KeyboardInterrupt:
        print(f"\ninterrupted{_again(args, words)}", file=sys.stderr)
        return 130
    except signals.Terminated as ended:
        print(f"terminated: {ended}{_again(args, words)}", file=sys.stderr)
        return signals.STATUS
    except BrokenPipeError:  # the reader of our output had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if not expected(error) or os.environ.get("MIMESIS_TRACE"):
            traceback.print_exc()
            return getattr(error, "status", 2) if expected(error) else 1
        print(f"mimesis: {_told(error)}", file=sys.stderr)
        return getattr(error, "status", 2)
    return 0


def _again(args: argparse.Namespace, words: Sequence[str]) -> str:
    """How to go on with work that was stopped; "" where nothing goes on."""
    if not getattr(args, "out", None) or args.verb not in ("demo", "train", "evidence"):
        return ""
    return f"; to go on from the last checkpoint: {shlex.join(['mimesis', *words])}"


def _told(error: Any) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror or error}"
    return str(error)


if __name__ == "__main__":
    sys.exit(main())
