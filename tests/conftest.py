"""Settings of all tests: no test is timed, since machines are busy."""

from hypothesis import settings

settings.register_profile("house", deadline=None)
settings.load_profile("house")
