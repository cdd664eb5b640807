"""The record and the form of one case, and the end-state check that decides success."""

from __future__ import annotations

from mimesis_jax.desk import acts, goals

TURNS = 9  # agent turns of a case, calls included


class Record:
    """The desk's books during one case: the record's fields, the form, whether it was denied.

    Mutable and single-use; `act` is the only way to change it.
    """

    def __init__(self, goal: goals.Goal):
        self.goal = goal
        self.form: dict[str, str] = {}
        self.denied = False

    def act(self, act: acts.Act) -> str | None:
        """Carry out an act; the tool's answer when it is a call, None otherwise.

        A slot of the guide cannot be set before those that the guide names earlier: the answer is
        then "first s" and nothing more of the call is done. Granting (offer, set) takes a denial
        back; a denial does not empty the form.
        """
        request = self.goal.request
        match act.name:
            case "look":
                known = {**dict(self.goal.record), **self.form}
                return f"{act.target} {known.get(act.target, 'unknown')}"
            case "set":
                return self._set(act.pairs)
            case "deny" if act.target == request:
                self.denied = True
            case "offer" if act.target == request:
                self.denied = False
        return None

    def _set(self, pairs: goals.Pairs) -> str:
        needed = self.goal.flow.needed
        for slot, value in pairs:
            before = needed[: needed.index(slot)] if slot in needed else ()
            for earlier in before:
                if earlier not in self.form:
                    return f"first {earlier}"
            self.form[slot] = value
            self.denied = False
        return "ok"

    def unmet(self) -> dict[str, str]:
        """Wishes not met: {slot: final value wished}; slots set against the wish included."""
        wanted = self.goal.form
        missed = {s: v for s, v in wanted.items() if self.form.get(s) != v}
        return missed | {s: "unwanted" for s in self.form if s not in wanted}

    def right(self) -> bool:
        """The end-state check: final wishes met and nothing else set, denied exactly when the
        rule says deny."""
        return self.denied == (not self.goal.allowed) and not self.unmet()
