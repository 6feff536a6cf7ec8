"""The demo: target with an agent in it, proxy, host point and load, in the background under one supervisor.

lifecycle   what ``chaos-mm demo up|down|status`` do
supervisor  the detached process that starts, watches and restarts the others
child       one of those others: started tethered, ready when it says so
tether      makes a process die with its supervisor
ports       which ports, and whether they are free
state       demo.json, where the parts above meet
experiments the runs of a bare ``chaos-mm demo`` and their table
"""
