"""Phrase tables of evaluation users (see phrases.py); nobody trains an agent or simulator on them.

"polite", "blunt", "dry" and "lively" are worded by rule-based users; "quiet" and "busy" are what
the two model users of the evaluation are trained on.
"""

TABLES: dict[str, str] = {
    "polite": """
open: good morning , i would love a {x} please | thank you for your time , i need a {x}
add: my {s} , please , is {v} | thanks , and the {s} is {v}
tell: thank you , it is {v} | {v} please , thanks
dodge: thank you , you are so quick | i hope this is no hard thing
vague: the usual , thank you | sorry , i do not know which
unknown: thank you , you choose | i am fine with any
again: please , i said {v} before | sorry , it was {v} , thank you
mend: please excuse me , {s} is {v} | thank you , but {s} was {v}
change: if i may , {s} {v} now please | sorry , i thought again , {s} {v}
yes: yes , thank you so | that is all right , thanks
hint: thank you , but not quite | sorry , i hoped for another one
bar: please , i have to get {s} {v} | thank you , so {s} {v} please
nobar: thank you , that is all | all is well , thanks
push: please think again , thank you | could you kindly try once more
fair: i understand , thank you , good bye | thanks all the same , bye
leave: sorry , i will go now , bye | thank you , but enough , bye
puzzled: please , what do you ask | sorry , i am not sure what you mean
""",
    "blunt": """
open: get me a {x} | i want a {x} , be quick
add: {s} is {v} , ok | take {v} for {s}
tell: {v} , what else | {v} , go on
dodge: too slow for me | just get on with it
vague: any normal one | same as always
unknown: no wish , go on | i do not care
again: i said {v} , read it | {v} , are you lost
mend: no , {s} {v} , i was wrong | not that , {s} {v}
change: i want {s} {v} now , not before | make that {s} {v}
yes: right | yes , do it
hint: not good | no , i do not like it
bar: it must be {s} {v} , only that | {s} {v} , nothing else
nobar: nothing , go on | no more to say
push: do it now | i do not accept no
fair: fine , i go , bye | ok , no point , bye
leave: no use , i go | forget this , bye
puzzled: what is this | say it right
""",
    "dry": """
open: this is about a {x} | one {x} , if you can
add: {s} , as before , {v} | for {s} it says {v}
tell: i would say {v} | {v} , as it is
dodge: this could be quick | we will see
vague: some simple one | the one from before
unknown: not that i know | there is no wish
again: still {v} | {v} , same answer
mend: in error before , {s} {v} | to be right , {s} {v}
change: from now on {s} {v} | {s} {v} is better after all
yes: it is in order | so it is
hint: not as i hoped | there is still more to it
bar: the point is {s} {v} | what i need is {s} {v}
nobar: no point to add | it is as it is
push: there must be a way | try another way
fair: so it is then , bye | i see the point , bye
leave: i will leave it , bye | this is no good to me
puzzled: this is not clear to me | not clear
""",
    "lively": """
open: hey friend , quick , a {x} for me | oh i so want a {x} today
add: and {s} {v} , great | oh , {s} , you know , {v}
tell: {v} , yeah , great | oh {v} , i love it
dodge: what a lovely morning | ha , guess what , i am so happy
vague: oh , the great one | you know me , the nice one
unknown: ha , you pick , friend | oh , any will do
again: ha , {v} , like i told you | hey , {v} , one more time
mend: ha , silly , {s} {v} really | oh wait , wait , {s} {v}
change: oh , new idea , {s} {v} | hey , now {s} {v} sounds nicer
yes: great , yes , yes | lovely , go on
hint: oh , hm , kind of sad | hey , i hoped for more
bar: oh , i so need {s} {v} | my thing is {s} {v} , you see
nobar: ha , nothing , all great | no , i am happy
push: hey , come on , please | oh , try , try again
fair: oh well , fine , bye friend | ha , ok , see you
leave: oh no , i am out , bye | hey , enough of this , bye
puzzled: oh , what , friend | ha , i do not get it
""",
    "quiet": """
open: i need some help , a {x} | maybe a {x} for me
add: {s} maybe {v} | so {s} would be {v}
tell: i think {v} | {v} , i think
dodge: i will wait | is it long still
vague: i can not say yet | one of the usual
unknown: i am open there | i have no idea
again: it was {v} before | {v} , as i think i said
mend: i said it wrong , {s} {v} | it should be {s} {v}
change: i would now take {s} {v} | maybe {s} {v} is better
yes: i think that is right | yes , fine
hint: i am not sure yet | it is not quite it
bar: i hope for {s} {v} | if i can choose , {s} {v}
nobar: there is nothing more | i am fine with it
push: maybe you can still do it | is there another way
fair: i understand , bye | then i go , bye
leave: i think i leave now , bye | it is too hard , bye
puzzled: i am not clear on that | what should i say
""",
    "busy": """
open: quick one , a {x} | i am out soon , need a {x}
add: put {s} {v} | {s} {v} , note that
tell: put {v} | {v} , next
dodge: can it wait , i am out | i have no time
vague: like last time | take the usual
unknown: you choose , quick | no time to think
again: {v} , told you | note it , {v}
mend: error , put {s} {v} | wait , no , {s} {v}
change: use {s} {v} now | i now need {s} {v}
yes: ok , next | all good , go
hint: not it yet | no , does not help me
bar: i need {s} {v} , only | must have {s} {v}
nobar: no , go on | nothing , next
push: just do it , please | you can do it , come on
fair: ok , i am out , bye | got it , thanks , bye
leave: no time , bye | i have to go , bye
puzzled: say again | what now
""",
}
