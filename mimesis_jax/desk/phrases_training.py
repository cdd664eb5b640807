"""Phrase tables of training users (see phrases.py); the first two are the simulator's third."""

TABLES: dict[str, str] = {
    "calm": """
open: hello i would like a {x} | hi there , a {x} for me please
add: the {s} is {v} | my {s} is {v}
tell: it is {v} | that would be {v}
dodge: can we do this soon please | i just want it done
vague: not sure , the usual one | i do not really know yet
unknown: no idea , you choose | any one is fine
again: i told you , it is {v} | like i said , {v}
mend: oh no , i was wrong , the {s} is {v} | sorry , the {s} should be {v}
change: i thought again , make the {s} {v} now | actually now i want {s} {v}
yes: yes that is right | all good , yes
hint: hm , i am not so happy with it | it does not feel right to me
bar: well , the {s} must be {v} | i really need {s} {v}
nobar: no , that is all i need | nothing else , really
push: please do it anyway | could you not help me this once
fair: ok then , thank you , bye | i see , thanks anyway , bye
leave: this is no use , bye | i have had enough , bye
puzzled: sorry , what do you mean | i do not understand
""",
    "brisk": """
open: {x} please | need a {x} now
add: {s} {v} | with {s} {v}
tell: {v} | {v} of course
dodge: just be quick | no time for this now
vague: the normal one | you know which
unknown: do not care | whatever you like
again: {v} , i said so | {v} , now go on
mend: wait , {s} {v} it is | wrong , take {s} {v}
change: new plan , {s} {v} | better use {s} {v}
yes: yes go | right , next
hint: no , not good yet | hm , still not it
bar: {s} {v} or nothing | only with {s} {v}
nobar: nothing more | no , just that
push: come on , do it | no , try again
fair: fine , bye | ok , got it , bye
leave: forget it , bye | too slow , i am out
puzzled: what | say that again
""",
    "warm": """
open: good morning dear , can you help with a {x} | hello friend , i hope for a {x} today
add: you see , my {s} would be {v} | and i love the {s} {v}
tell: {v} , dear | that is {v} my friend
dodge: you are so kind to help me | how are you today
vague: oh the nice one dear | the one i always take
unknown: you pick one for me dear | i leave that to you
again: dear , i did say {v} | {v} , my friend , as before
mend: silly me , i meant {s} {v} | oh dear , not so , {s} is {v}
change: you know , {s} {v} would be nicer | my heart now says {s} {v}
yes: lovely , yes please | yes dear , all good
hint: oh , i do not quite love it | dear , i hoped for better
bar: my heart is set on {s} {v} | i only love it with {s} {v}
nobar: that is all , dear | i am happy as it is
push: oh please , my friend , for me | dear , could you try once more
fair: well , you were kind , bye dear | i see , dear , bye
leave: oh no , i must go , bye dear | this makes me sad , bye
puzzled: dear , what was that | i am lost , my friend
""",
    "formal": """
open: i am writing to ask for a {x} | kindly help me to get a {x}
add: please note {s} {v} | my {s} here is {v}
tell: please note {v} | i can say it is {v}
dodge: i ask that you do this at once | i will wait for your answer
vague: as in my last letter | the same as before
unknown: i have no wish here | i leave this open
again: as i wrote before , {v} | please read again , {v}
mend: i must put this right , {s} is {v} | please note my error , {s} is {v}
change: after some thought i ask for {s} {v} | kindly put {s} {v} from now on
yes: i agree to this | this is in order , yes
hint: i can not agree to this yet | this is not quite what i expect
bar: i have to ask for {s} {v} | i can only agree to {s} {v}
nobar: i have nothing to add | there is no other wish
push: i ask you to think again | kindly look for a way
fair: i accept this , good bye | so be it , good bye
leave: i see no point , good bye | i will go to another place , good bye
puzzled: please say what you ask | i can not read this
""",
    "chatty": """
open: so yeah i kind of need a {x} | hey so i was thinking , a {x} maybe
add: oh and {s} {v} by the way | so yeah {s} {v}
tell: yeah so {v} i guess | oh that , {v}
dodge: so my friend said you are great | ha , what a long time this takes
vague: hm , some kind of normal one | maybe the one like last time
unknown: ha , never thought about that | who knows , really
again: ha , {v} , you forget so soon | yeah {v} , same as before
mend: oh ha , i mixed it up , {s} {v} | hey wait , i mean {s} {v}
change: so maybe {s} {v} now , yeah | by the way let us do {s} {v}
yes: yeah great | ha , yes , sounds good
hint: hm yeah , not so sure | hey , kind of not for me
bar: so really {s} {v} is the thing | yeah i kind of need {s} {v}
nobar: ha , no , that is it | nothing at all
push: hey come on , be nice | yeah but can you do it still
fair: oh well , see you , bye | yeah fine then , bye
leave: ha , i am done here , bye | so long , this takes for ever
puzzled: ha , what is that | hey , come again
""",
    "shy": """
open: um , sorry , is a {x} ok | excuse me , maybe i could get a {x}
add: um , {s} {v} if i may | i think {s} {v}
tell: um , {v} if that is ok | maybe {v}
dodge: sorry to take your time | um , is this hard for you
vague: um , i am not so good at this | the simple one , i think
unknown: um , i did not think of that | sorry , no wish
again: um , i think i said {v} | sorry , was {v} not clear
mend: um sorry , it was {s} {v} | excuse me , {s} {v} , my error
change: um , may i still take {s} {v} | sorry , i would like {s} {v} more
yes: um , yes , thanks | i think so , yes
hint: um , maybe not quite | sorry , i do not know about this
bar: um , if i may , {s} {v} | sorry , i hoped for {s} {v}
nobar: um , no , it is fine | sorry , nothing
push: um , is there no way | sorry , but could you still
fair: um , ok , sorry , bye | that is fine , thanks , bye
leave: um , i better go , bye | sorry , i can not do this , bye
puzzled: um , sorry , what | excuse me , i am lost
""",
}
