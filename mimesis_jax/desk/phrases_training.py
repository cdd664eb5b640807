"""Phrase tables of training users (see phrases.py); the first two are the simulator's third."""

TABLES: dict[str, str] = {
    "calm": """
open: hello i would like a {x} | hi there , a {x} for me please | i am here for a {x}
| could you do a {x} for me | i would be glad of a {x} | there is a {x} i need
| a {x} is what i am after
add: the {s} is {v} | my {s} is {v} | for the {s} i have {v} | {v} is my {s}
| i want the {s} to be {v} | as for the {s} , {v}
tell: it is {v} | that would be {v} | i would like {v} | let me say {v} | {v} , i would say
| make it {v} | i have {v}
dodge: can we do this soon please | i just want it done | i am at home all week
| how long will this be | thanks for looking at it | it is nice and warm here
vague: not sure , the usual one | i do not really know yet | i will know it when i see it
| something simple | i forget which one it was | it was one of them , i think
unknown: no idea , you choose | any one is fine | i have no view on that | it is all the same to me
| either will do for me | leave it as you think best
again: i told you , it is {v} | like i said , {v} | {v} , i have said it | that was {v}
| i did say {v} , did i not | once more , {v}
mend: oh no , i was wrong , the {s} is {v} | sorry , the {s} should be {v}
| i made an error , the {s} is {v} | that was not right , the {s} is {v}
| the {s} i gave was wrong , it is {v} | sorry , my {s} is really {v}
change: i thought again , make the {s} {v} now | actually now i want {s} {v}
| i have changed my mind , {s} {v} | let us take {s} {v} after all | i would now rather have {s} {v}
| please put {v} for the {s} now
yes: yes that is right | all good , yes | that is what i want | this is fine with me
| good , thank you | yes , you have it right | that will do well
hint: hm , i am not so happy with it | it does not feel right to me | i am not sure i like that
| no , that is not what i had in mind | no , there is something i miss here
| i had something else in mind | i would not be glad with that
bar: well , the {s} must be {v} | i really need {s} {v} | for me the {s} has to be {v}
| it only works for me with {s} {v} | without {s} {v} i do not want it | my wish is {s} {v}
nobar: no , that is all i need | nothing else , really | there is no more to it
| i have told you all | no , i have no other wish | all is as i want it
push: please do it anyway | could you not help me this once | is there really no way
| could you make it work for me | please look at it again | i still would so like it
| i still want it
fair: ok then , thank you , bye | i see , thanks anyway , bye | that is a pity , but thank you , bye
| i can live with that , bye | alright , good bye | if it can not be , bye
leave: this is no use , bye | i have had enough , bye | i will try it another time , bye
| i stop here , bye | this goes nowhere , bye | let us end this , bye
puzzled: sorry , what do you mean | i do not understand | i did not get that
| could you say it in other words | what is it you need from me | that makes no sense to me
""",
    "brisk": """
open: {x} please | need a {x} now | get going on a {x} | {x} , right now | quick , one {x}
| we do a {x} | i came for a {x}
add: {s} {v} | with {s} {v} | {v} as {s} | {s} is {v} | take {s} {v} | {v} for the {s}
tell: {v} | {v} of course | {v} then | {v} , write it | go with {v} | so {v} | just {v}
dodge: just be quick | no time for this now | my bus is here | that can wait | how long will it be
| i have a call on the other line
vague: the normal one | you know which | some one | what i had | the first one there is | no clue
unknown: do not care | whatever you like | all the same | you say | skip it | any
again: {v} , i said so | {v} , now go on | {v} , second time | still {v} , go | did say {v}
| {v} , as said
mend: wait , {s} {v} it is | wrong , take {s} {v} | no wait , {s} is {v} | not that one , {s} {v}
| my error , {s} {v} | oops , i mean {s} {v}
change: new plan , {s} {v} | better use {s} {v} | now {s} {v} | switch to {s} {v} instead
| i go for {s} {v} now | rather {s} {v}
yes: yes go | right , next | ok good | yes that | fine , do it | good , go on | that is it
hint: no , not good yet | hm , still not it | no good | not happy | no , that misses something
| no , i want more | not what i want
bar: {s} {v} or nothing | only with {s} {v} | {s} {v} , that is a must | needs {s} {v}
| no {s} {v} , no deal | i want {s} {v} , period
nobar: nothing more | no , just that | all said | that was all | no more | none
push: come on , do it | no , try again | one more try | make it work | you can do this | find a way
| do it still
fair: fine , bye | ok , got it , bye | alright , bye | too bad , bye | understood , bye
| so no , bye
leave: forget it , bye | too slow , i am out | i go | enough , bye | waste of time , bye
| done here , bye
puzzled: what | say that again | come again | huh | speak clear | no idea what you ask
""",
    "warm": """
open: good morning dear , can you help with a {x} | hello friend , i hope for a {x} today
| my dear , i dream of a {x} | would you be so sweet and do a {x}
| how nice to meet you , i need a {x} | my friend , it is about a {x}
add: you see , my {s} would be {v} | and i love the {s} {v} | my sweet {s} is {v}
| i was thinking of {v} for the {s} | {s} {v} makes me smile | the {s} , dear , is {v}
tell: {v} , dear | that is {v} my friend | oh , {v} , my dear | sweet {v} | i would love {v}
| {v} makes me happy | my choice is {v} , friend
dodge: you are so kind to help me | how are you today | i hope you are well
| bless you , you work so hard | my week was long , dear | what a nice talk we have
vague: oh the nice one dear | the one i always take | the sweet one , you know
| one like my friend has | oh , i can never recall it | a good one , dear
unknown: you pick one for me dear | i leave that to you | all of them are nice
| my dear , i do not mind at all | surprise me | whatever makes you happy
again: dear , i did say {v} | {v} , my friend , as before | my dear , it was {v}
| {v} , sweet friend , i told you | yes , {v} , as i said , dear | once more for you , {v}
mend: silly me , i meant {s} {v} | oh dear , not so , {s} is {v}
| oh my , i said it wrong , {s} is {v} | forgive my error , the {s} is {v}
| dear , i was wrong , {s} {v} | i am so silly , it is {v} for {s}
change: you know , {s} {v} would be nicer | my heart now says {s} {v}
| my dear , i now dream of {s} {v} | i now fell in love with {s} {v} | may it be {s} {v} now , dear
| i feel more like {s} {v} today
yes: lovely , yes please | yes dear , all good | you are so good , yes | perfect , dear
| that makes me happy | oh yes , my friend | just what i dream of
hint: oh , i do not quite love it | dear , i hoped for better | my heart is not in it
| oh no , dear , i miss something | no , i am a bit sad about it | that does not make me smile
| not quite my dream , dear
bar: my heart is set on {s} {v} | i only love it with {s} {v} | dear , i must have {s} {v}
| you see , {s} {v} means all to me | it would make me so happy with {s} {v}
| i dream of {s} {v} , only that
nobar: that is all , dear | i am happy as it is | no , dear , i am all set
| you gave me all , friend | my heart has no more wish | no , it is lovely so
push: oh please , my friend , for me | dear , could you try once more | dear , do not say no
| my heart says try | for an old friend , please | please , i beg you , dear
fair: well , you were kind , bye dear | i see , dear , bye | you did your best , dear , bye
| no hard feelings , dear , bye | thank you for trying , friend , bye | all is forgiven , bye
leave: oh no , i must go , bye dear | this makes me sad , bye | i am tired now , dear , bye
| my heart is sad , bye | we stop here , my friend , bye | i lose hope , dear , bye
puzzled: dear , what was that | i am lost , my friend | forgive me , i did not follow
| dear , say it once more | my friend , what do you need | oh , you lost me there , dear
""",
    "formal": """
open: i am writing to ask for a {x} | kindly help me to get a {x} | this letter concerns a {x}
| i hereby request a {x} | i would ask you to arrange a {x} | my matter is a {x}
add: please note {s} {v} | my {s} here is {v} | the {s} in question is {v} | i state {s} {v}
| for your file , {s} {v} | you will need my {s} , {v}
tell: please note {v} | i can say it is {v} | the answer is {v} | i state {v}
| my answer to this is {v} | you may write down {v} | for the file , {v}
dodge: i ask that you take good care of this | i will wait for your answer | i expect a swift answer
| my time is of value | i trust you will deal with this | i have written to you for years
vague: as in my last letter | the same as before | you will find it in your file
| i do not have it at hand | it is one of the common ones | i would have to look it up
unknown: i have no wish here | i leave this open | i state no view on this
| this is of no matter to me | i leave the choice to you | no view is given
again: as i wrote before , {v} | please read again , {v} | my answer was {v}
| as i have stated , {v} | i refer to my last answer , {v} | this has been stated , {v}
mend: i must put this right , {s} is {v} | please note my error , {s} is {v}
| i correct my error , {s} {v} | my last statement was wrong , {s} is {v}
| i state this better , the {s} is {v} | sorry , the right {s} is {v}
change: after some thought i ask for {s} {v} | kindly put {s} {v} from now on
| i now revise my choice to {s} {v} | i hereby change the {s} to {v}
| upon review i request {s} {v} instead | my new choice of {s} is {v}
yes: i agree to this | this is in order , yes | i confirm this | this is correct | you may proceed
| i have no objection | that is to my satisfaction
hint: i can not agree to this yet | this is not quite what i expect | this does not satisfy me
| no , i have an objection | not all of this is settled | i would not sign this
| no , i expected a better offer
bar: i have to ask for {s} {v} | i can only agree to {s} {v} | my condition is {s} {v}
| i insist on {s} {v} | i will not sign without {s} {v} | it is required that {s} be {v}
nobar: i have nothing to add | there is no other wish | i have stated all
| there is no other condition | nothing else is required | this concludes my request
push: i ask you to think again | kindly look for a way | i object , do it again
| i insist that you try | please review your answer | i request that you do reconsider
fair: i accept this , good bye | so be it , good bye | i take note of this , good bye
| i accept your answer , good bye | the matter is closed , good bye | very well , good bye
leave: i see no point , good bye | i will go to another place , good bye
| i end this talk , good bye | i withdraw my request , good bye | this is a waste of time , good bye
| i consider this closed , good bye
puzzled: please say what you ask | i can not read this | i do not follow you
| kindly state your question | your question is not clear | please put that in other terms
""",
    "chatty": """
open: so yeah i kind of need a {x} | hey so i was thinking , a {x} maybe
| so guess what , a {x} is on my list | yeah hi , it is me , about a {x}
| man i need a {x} , like , now | so there is this {x} thing
add: oh and {s} {v} by the way | so yeah {s} {v} | and like , {s} {v} | {s} , yeah , {v} i guess
| did i say {s} {v} | so my {s} , that is {v}
tell: yeah so {v} i guess | oh that , {v} | well , like , {v} | so , {v} , cool | uh , {v} , right
| that one is {v} , man | {v} , easy
dodge: so my friend said you are great | ha , what a long time this takes
| so anyway , how is it going | man , what a week | wait , my cat is on the desk
| did you see the game
vague: hm , some kind of normal one | maybe the one like last time | uh , the cool one
| like , you know , that one | man , i forget | some one or other
unknown: ha , never thought about that | who knows , really | man , i do not mind
| like , any , really | no clue , you tell me | uh , never mind that
again: ha , {v} , you forget so soon | yeah {v} , same as before | man , {v} , again
| like i just said , {v} | uh , it is {v} still | so , {v} , one more time
mend: oh ha , i mixed it up , {s} {v} | hey wait , i mean {s} {v}
| uh sorry , it is {s} {v} , my bad | man , i got it wrong , {s} {v} | so not that , {s} is like {v}
| my bad , i mean {s} {v} in fact
change: so maybe {s} {v} now , yeah | by the way let us do {s} {v}
| so i was thinking , {s} {v} is cool now | man , {s} {v} is better | like , can we go {s} {v} now
| uh , let us switch , {s} {v}
yes: yeah great | ha , yes , sounds good | cool , cool | yeah man , do that | right on
| like , perfect | so good , yeah
hint: hm yeah , not so sure | hey , kind of not for me | uh , not so cool
| man , no , that is kind of off | like , no , meh | no , i was kind of after more
| so yeah , no , not it
bar: so really {s} {v} is the thing | yeah i kind of need {s} {v} | like , it has to be {s} {v}
| man , {s} {v} or i am out | so the thing is , {s} {v} , you know | uh , i really want {s} {v}
nobar: ha , no , that is it | nothing at all | uh , no , we are good | like , that is all man
| so nope | no , man , all cool
push: hey come on , be nice | yeah but can you do it still | man , come on
| like , you sure , try again | uh , but i really want it | so is there some way
fair: oh well , see you , bye | yeah fine then , bye | cool , no worries , bye
| man , ok , later , bye | so it goes , bye | uh , alright then , bye
leave: ha , i am done here , bye | so long , this takes for ever , bye | man , i am off , bye
| like , never mind , bye | uh , this is dull , bye | so not worth it , bye
puzzled: ha , what is that | hey , come again | uh , what now | man , you lost me
| like , what do you mean | so what was the question
""",
    "shy": """
open: um , sorry , is a {x} ok | excuse me , maybe i could get a {x}
| um , hi , i was told to ask for a {x} | is this where i ask for a {x}
| i hope it is no trouble , a {x} | um , could there be a {x}
add: um , {s} {v} if i may | i think {s} {v} | maybe the {s} , um , {v} | {s} {v} , if that is fine
| um , is {s} {v} possible | i guess my {s} is {v}
tell: um , {v} if that is ok | maybe {v} | i guess {v} | could it be {v} | um , i hope {v} is fine
| perhaps {v} | {v} , sorry
dodge: sorry to take your time | um , is this hard for you | um , am i in your way
| i hope i do this right | sorry , i write with one hand | um , i never did this
vague: um , i am not so good at this | the simple one , i think | um , it is hard to say
| perhaps the simple one | i am not certain , sorry | um , like the others
unknown: um , i did not think of that | sorry , no wish | um , i would not know | perhaps you decide
| sorry , i can not say | um , it does not matter
again: um , i think i said {v} | sorry , was {v} not clear | um , it was {v} , sorry
| perhaps i was not clear , {v} | sorry to repeat , {v} | i guess i said {v}
mend: um sorry , it was {s} {v} | excuse me , {s} {v} , my error
| um , i am so sorry , {s} {v} it is | perhaps i mixed that up , {s} is {v}
| oh , sorry , not that , {s} {v} | i fear i was wrong , {s} is {v}
change: um , may i still take {s} {v} | sorry , i would like {s} {v} more
| um , could we change to {s} {v} | perhaps {s} {v} instead | sorry to trouble you , {s} {v} now
| i guess i would rather {s} {v}
yes: um , yes , thanks | i think so , yes | um , that is nice | i guess so , yes
| perhaps , yes , thanks | um , good , thanks | that is what i hoped
hint: um , maybe not quite | sorry , i do not know about this | um , i do not dare to say
| no , perhaps there is a better one | i guess i am not happy | um , it is a bit wrong
| sorry , that is not really it
bar: um , if i may , {s} {v} | sorry , i hoped for {s} {v} | um , it should be {s} {v} , sorry
| perhaps i need {s} {v} | i fear i need {s} {v} | sorry , i can only take {s} {v}
nobar: um , no , it is fine | sorry , nothing | um , i think that is all | sorry , no , all fine
| i guess not | perhaps not , no
push: um , is there no way | sorry , but could you still | um , please | perhaps do it this one time
| i hoped you could do it | sorry , i really need it
fair: um , ok , sorry , bye | that is fine , thanks , bye | um , i see , bye
| i guess that is it , bye | sorry to have asked , bye | perhaps another time , bye
leave: um , i better go , bye | sorry , i can not do this , bye | um , i give up , bye
| sorry , i stop now , bye | i guess this does not work , bye | perhaps i ask my mom , bye
puzzled: um , sorry , what | excuse me , i am lost | um , i did not get it | perhaps say it again
| sorry , which one | i guess i am confused
""",
}
