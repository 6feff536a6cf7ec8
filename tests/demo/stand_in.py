"""A process that behaves as a point does towards its supervisor: says that it is ready, serves a port, obeys TERM.

python stand_in.py NAME PORT [--standby] [--ending never-ready|early]
"""

import json
import os
import socket
import sys
import time

name, port, flags = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
if "early" in flags:
    print("the model file is broken", file=sys.stderr)
    sys.exit(7)
if "--standby" in flags:
    print(json.dumps({"standby": name}), flush=True)
    if not sys.stdin.readline():
        sys.exit(0)
with socket.create_server(("127.0.0.1", port)) as server:
    if "never-ready" not in flags:
        print(json.dumps({"ready": name, "pid": os.getpid()}), flush=True)
    print("a line for the log", flush=True)
    while True:
        connection, _ = server.accept()
        with connection:
            connection.sendall(str(os.getpid()).encode())
        time.sleep(0)
