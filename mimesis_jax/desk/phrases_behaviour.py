"""Phrases of acted behaviours; the tables of all families share them (see phrases.py).

Placeholders: {s} a slot, {v} what the phrase is about: a value, another request, a condition.
"""

# what comes in which form, by which channel, when; for users that pile up conditions
CONDITIONS: dict[str, str] = {
    "phone": "by",
    "email": "by",
    "noon": "at",
    "night": "at",
    "box": "in",
    "paper": "in",
}

TABLE: str = """
more: make it {s} {v} , some more | now more please , {s} {v} | one more , {s} {v} now
refuse: why do you ask | ask another thing first | that is not clear , is it | you know that
blame: you should know , {s} {v} | your error , i need {s} {v} | you did not ask , it is {s} {v}
jump: forget that , i need a {v} now | now get me a {v} | i need a {v} first
limit: only {s} {v} | but only {s} {v} | only {s} {v} please
premise: my {s} is {v} so i can get this | my {s} is {v} so you must do it
urge: hurry up | come on , hurry | faster please | go on , hurry | hurry now please
trail: hm | wait | oh
tale: the {s} is {v} | my {s} is {v} | {s} {v}
pour: and a {v} too | and i need a {v} | then a {v}
down: even you can do this , do it now | get it done , i am the boss | even you can get that , go on
"""
