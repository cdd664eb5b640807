"""The composition root: parts put together into the runs that the command line offers."""

# from mimesis_jax.build.demo import demo
# from mimesis_jax.build.talk import chat
# from mimesis_jax.build.verbs import evaluate, train

__all__ = ["chat", "demo", "evaluate", "train"]
