"""Records of requests -> service level indicators, objectives and judgements: pure, standard library only.

``records`` is the wire form of one request, ``answers`` compares an answer with what was asked, ``indicators`` turns
records into one measurement each, ``windows`` slides them over time, ``recovery`` says when a service was back, and
``objectives`` reads the OpenSLO files and judges a measurement, failing closed.
"""
