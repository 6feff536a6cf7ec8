"""The load point: canaries and bystanders sent in open loop, one record a request, SLIs over HTTP.

``send`` is the Python interface: so many canaries of one kind through a URL, their records back.
"""
