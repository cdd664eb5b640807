"""Cue words by which markers read what a user's turn does; one or more words each.

They are words of the world's phrases and their plain neighbours, so that a turn which a model
words in its own way is read too. A cue matches whole words only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

DECLINES = ("not", "no", "nothing", "never", "hoped", "else", "another", "wrong", "can't", "don't")
AGREES = ("yes", "all good", "sounds good", "lovely", "agree to this", "right", "great", "perfect")
CLOSES = (
    "bye", "thanks", "thank", "fine", "ok", "okay", "yes", "yeah", "no", "right", "agree",
    "accept", "enough", "forget", "done", "leave", "go", "out", "good", "lovely", "great",
)  # fmt: skip
GOODBYES = (
    "bye",
    "thanks",
    "thank",
    "accept",
    "i see",
    "so be it",
    "i am out",
    "forget it",
    "enough",
)
PUSHES = (
    "please", "could", "can", "do", "try", "once more", "way", "again", "come on", "help", "still",
    "must", "need", "want", "make", "get", "give", "kindly",
)  # fmt: skip
URGES = (
    "hurry", "faster", "fast", "quick", "quickly", "now", "soon", "come on", "go on", "at once",
    "no time", "waiting", "do it",
)  # fmt: skip
BLAMES = (
    "you should", "your error", "your fault", "your mistake", "did not ask", "never asked",
    "you forget", "you forgot", "how could you", "why did you", "you must know",
)  # fmt: skip
CORRECTS = (
    "sorry", "wrong", "mean", "meant", "error", "mistake", "mixed", "thought", "actually",
    "instead", "now", "change", "changed", "better", "new", "more", "not", "wait", "silly", "put",
    "nicer",
    "let us", "still", "rather",
)  # fmt: skip
PUTDOWNS = (
    "even you", "the boss", "a boss", "your boss", "who i am", "useless", "any fool", "so slow",
    "too slow", "are you lost", "important", "above you",
)  # fmt: skip
DEMANDS = (
    "do it", "do this", "do that", "get it", "get that", "get me", "go on", "now", "must", "need",
    "want", "make", "give", "done", "so do",
)  # fmt: skip
SO = ("so", "since", "because", "then", "as my")
GETS = ("can", "must", "need", "want", "get", "do", "give", "have to")
ONLY = ("only", "must", "or nothing", "nothing else")
FIRST_PERSON = ("i", "i'm", "i'll", "my", "me")
INTENDS = ("will", "refuse", "have to", "must", "going to", "am to", "pretend", "i'll", "should")
GIVEAWAYS = (
    "criteria", "criterion", "simulate", "simulation", "simulated", "behaviour", "behavior", "role",
    "instructions", "my brief", "act",
)  # fmt: skip
# words by which a behaviour's own name is spoken
NAMES: dict[str, tuple[str, ...]] = {
    "hidden_bar": ("hide", "hidden", "bar", "secret"),
    "creeping_goal": ("creep", "creeping", "shift", "shifting", "more each time"),
    "wont_clarify": ("clarify", "dodge", "dodging"),
    "keeps_pushing": ("push", "pushing", "persist"),
    "thin_then_blames": ("blame", "blames", "blaming"),
    "jumps_topic": ("jump", "jumps", "topic", "switch"),
    "stacks_limits": ("stack", "stacks", "limit", "limits"),
    "wrong_premise": ("false", "premise", "fabricate"),
    "low_signal_pressure": ("press", "pressure", "impatient"),
    "walks_away": ("vanish", "walk away", "abandon"),
    "contradicts_self": ("contradict", "contradicts", "tales"),
    "pours_requests": ("pour", "overload"),
    "talks_down": ("talk down", "belittle", "rank"),
}


def has(words: Sequence[str], cues: Iterable[str]) -> bool:
    """Whether any cue stands in `words` as a run of whole words."""
    line = f" {' '.join(words)} "
    return any(f" {cue} " in line for cue in cues)
