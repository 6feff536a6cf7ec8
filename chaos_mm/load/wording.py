"""How canaries ask. Lower case and without punctuation: the demo target's words; real models take them as well.

``DEMO`` draws from ten wordings a kind, so that a cut question loses its meaning gradually and not at one point.
``PLAIN`` is one instruction a kind for models that like to talk. "{}" stands for the code, digit by digit.
"""

from collections.abc import Mapping

from chaos_mm.core.errors import BadRequest
from chaos_mm.sli.records import KINDS

Wordings = Mapping[str, tuple[str, ...]]

DEMO: Wordings = {
    "image": (
        "what number is in the picture",
        "read the number shown in the image",
        "please tell me which digits you can see in the picture right here",
        "please look at the picture and read out the number that you find there",
        "now have a look at this image and tell me which number it shows us",
        "i would like to know what number is written in the photo over there please",
        "there is something to read in this picture and it is a short number so tell me",
        "could you kindly tell me the code that is shown in the image i just sent you",
        "my question is about a picture so please write down the digits that it shows me",
        "we need the four digits which are to be seen here in this photo as you know",
    ),
    "colour": (
        "what colour is the number in the picture",
        "name the colour of the digits in the image",
        "please tell me which colour the digits have right here",
        "now have a look and tell me the colour of the number you see",
        "look at the number and then tell me its colour if you can please",
        "i would like to know what color is used to write the digits that you see there",
        "could you kindly look at the picture and name the colour which they used this time",
        "of the number that i sent you here please just tell me the colour and nothing else",
        "the thing that i want to know is the colour in which the number is written here",
        "tell me about the digits please and i mean which color they have to your eye",
    ),
    "audio": (
        "what number is in the audio",
        "tell me the number heard in the recording",
        "please tell me which digits you can hear in the audio right here",
        "please listen to the recording and write down the number that you hear there",
        "now listen well to this voice and tell me which number it tells us",
        "i would like to know what number is said in the audio over there please",
        "there is something to hear in this recording and it is a short number so tell me",
        "could you kindly tell me the code that is said by the voice i just sent you",
        "my question is about an audio so please write down the digits that it tells me",
        "we need the four digits which are to be heard here in this recording as you know",
    ),
    "agreement": (
        "is the spoken number the same as the one in the picture",
        "does the voice say the same number as the image shows",
        "do the picture and the audio agree on the number",
        "please tell me if the recording is the same as the picture or not",
        "now tell me whether the voice and the image do agree about this number please",
        "i would like to know if the spoken code is a match for what is written there",
        "tell me yes or no please does the audio match the thing that you can see here",
        "have a look at the picture and tell me if you hear the same thing said here",
        "could you kindly check whether they are the same thing in the image and in what you hear",
        "we need to know if they match so compare the photo with what you hear right now",
    ),
    "text": (
        "repeat the code {}",
        "please copy the digits {}",
        "write the number {} again",
        "please take the four digits {} and copy them for me right here",
        "i would like you to repeat the code {} for me now if you can",
        "here is a number for you it is {} so please say it again to me",
        "could you kindly copy this one for me {} and then tell me that you are done",
        "we have {} here and i need you to repeat it now",
        "now have a look at the code {} and write it down again for us please",
        "the thing to copy is {} and nothing else so please just write it down here",
    ),
}

PLAIN: Wordings = {
    "image": ("What is the 4-digit number in the picture? Answer with the four digits only.",),
    "colour": ("What colour is the number in the picture? Answer with one word.",),
    "audio": ("Which four digits are spoken in the audio? Answer with the four digits only.",),
    "agreement": ("Is the number spoken in the audio the same as the number in the picture? Answer yes or no.",),
    "text": ("Repeat this code, digits only: {}",),
}

WORDINGS: Mapping[str, Wordings] = {"demo": DEMO, "plain": PLAIN}

# Sentences that mean nothing to the question: cutting them must change nothing.
PADDING: tuple[str, ...] = (
    "the weather was mild this morning and the streets were quiet",
    "my neighbour bought a new bicycle last week",
    "tea tastes better with a little honey",
    "the train to the coast was late once more",
    "some birds sing long before the sun is up",
    "our garden needs water in the summer months",
    "the old bridge has stood for many years",
    "she left her umbrella at the office",
    "fresh bread smells good on a cold day",
    "the cat sleeps on the warm window sill",
    "nobody knows why the door was open",
    "they walked along the river until it was dark",
    "a friend of mine plays the piano on sundays",
    "the soup needs more salt and a bit of pepper",
    "we had a long talk about gardens and trees",
    "it may rain later so take a coat",
    "the shop on the corner sells good cheese",
    "he likes to read old books in the evening",
    "the children were playing football behind the house",
    "thank you for your time and have a nice day",
)


def read_wording(name: str, own: tuple[str, ...] = ()) -> Wordings:
    """The wordings called ``name``, with ``own`` ("KIND=QUESTION") in place of all others of that kind.

    Raises BadRequest on an unknown name or kind, and on a text question without the place of the code.
    """
    if name not in WORDINGS:
        raise BadRequest(f"wording is {name!r}; allowed: {', '.join(WORDINGS)}")
    found = dict(WORDINGS[name])
    for entry in own:
        kind, equals, question = entry.partition("=")
        if kind not in KINDS or not equals or not question.strip():
            raise BadRequest(f"question is {entry!r:.80}; allowed: KIND=QUESTION with KIND one of {', '.join(KINDS)}")
        if kind == "text" and "{}" not in question:
            raise BadRequest(f'question is {entry!r:.80}; a text question needs "{{}}" where the code goes')
        found[kind] = (question,)
    return found
