"""Who sits in which cache slot: conversations, and eviction of the one that was idle longest."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable


@dataclasses.dataclass(eq=False)
class Conversation:
    """trunk: all ids of its line. fed: how many of them are in its slot. slot: -1 for none.
    branch: ids of the private line, after the trunk, that its last replies are on. busy: it has an
    open request. branched: its slot stands on the branch (whose last id was never fed), and goes
    back to the mark before the trunk is fed again."""

    name: Hashable
    trunk: list[int] = dataclasses.field(default_factory=list)
    branch: list[int] = dataclasses.field(default_factory=list)
    fed: int = 0
    slot: int = -1
    busy: bool = False
    branched: bool = False


class Slots:
    """S slots. A conversation keeps its slot between requests; `place` evicts by least recent use.

    Only idle conversations are evicted, so a request that waits for a slot never takes one from a
    request that waits with it.
    """

    def __init__(self, count: int, groups: int = 1):
        """groups: devices that have count / groups slots each, given out in turn."""
        self.count = count
        self.evictions = 0
        local = count // groups
        self._free = sorted(range(count), key=lambda slot: (slot % local, slot // local))[::-1]
        self._idle: dict[Conversation, None] = {}  # resident and without a request, oldest first

    def place(self, conversation: Conversation) -> bool:
        """Gives a conversation without a slot one; False when all slots are busy."""
        if not self._free:
            if not self._idle:
                return False
            self.release(next(iter(self._idle)))
            self.evictions += 1
        conversation.slot = self._free.pop()
        conversation.fed, conversation.branched = 0, False
        return True

    def hold(self, conversation: Conversation) -> None:
        """A request of this conversation begins: its slot may not be taken."""
        conversation.busy = True
        self._idle.pop(conversation, None)

    def rest(self, conversation: Conversation) -> None:
        """Its request has ended: from here on it is the last in line for eviction."""
        conversation.busy = False
        if conversation.slot >= 0:
            self._idle[conversation] = None

    def release(self, conversation: Conversation) -> None:
        """Frees the slot; the state in it is lost, the ids are not."""
        self._idle.pop(conversation, None)
        if conversation.slot >= 0:
            self._free.append(conversation.slot)
        conversation.slot, conversation.fed, conversation.branched = -1, 0, False
