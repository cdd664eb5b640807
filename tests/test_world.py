"""The small world's dialogues: what each source is made of."""

from mimesis_jax.build import world


def made(**counts):
    return world.World(world.Config(**counts), vocab=512, seed=0)


def test_twisted_dialogues_have_something_to_correct_and_come_after_the_plain_ones():
    plain = made(user=4, twisted=0).user
    whole = made(user=4, twisted=6).user
    assert [e.dialogue for e in whole[:4]] == [e.dialogue for e in plain] and len(whole) == 10
    assert all(e.goal.wrong or e.goal.change for e in whole[4:])
    assert len({e.goal.seed for e in whole}) == 10
    # The agent without mistakes confirms, and most of these people then say what is to be changed.
    said = [t.private or "" for e in whole[4:] for t in e.dialogue if t.author == "user"]
    assert sum(" not " in text for text in said) >= 4
