"""What the demo model can be asked: wordings, meaningless padding, and what a cut question still asks.

Standard library only, so that a load, a test or an experiment can read it without torch. "{}" in a wording stands for
the code.

The meaning of a text is decided by its key words alone (``task_of``): the model was trained to answer the task that the
remaining words still name, and "unknown" when they name none or when the picture or speech they name is missing. The
key words of the wordings stand at different places on purpose: over all wordings of a task, accuracy falls gradually as
more of the text is cut, from whichever end. A single wording breaks at one point, so a load that wants a smooth
dose-response draws from all of them.
"""

from collections.abc import Sequence

PICTURE = frozenset({"picture", "image", "photo"})
SPEECH = frozenset({"audio", "recording", "voice", "spoken"})
NUMBER = frozenset({"number", "digits", "code"})
COLOUR = frozenset({"colour", "color"})
SAME = frozenset({"same", "match", "agree"})
COPY = frozenset({"repeat", "copy", "again"})
KEY_WORDS = PICTURE | SPEECH | NUMBER | COLOUR | SAME | COPY

COLOURS: tuple[str, ...] = ("red", "green", "blue", "yellow", "purple", "white", "black")
UNKNOWN = "unknown"

QUESTIONS: dict[str, tuple[str, ...]] = {
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


def task_of(words: Sequence[str]) -> str | None:
    """The task (a key of QUESTIONS) that lower-case ``words`` still name, or None.

    Digits are words of one character. The order of the tests is the model's: colour, agreement, text, image, audio.
    """
    left = frozenset(words)
    picture, speech, number = left & PICTURE, left & SPEECH, left & NUMBER
    if left & COLOUR:
        return "colour" if number or picture else None
    if left & SAME:
        return "agreement" if picture or speech else None
    if left & COPY:
        return "text" if any(word.isdigit() for word in words) else None
    if not number or bool(picture) == bool(speech):
        return None
    return "image" if picture else "audio"
