# SPDX-License-Identifier: GPL-2.0-only
"""The line to a test's sshd: copies between standard input and output and a port.

nsenter --net ... python3 line.py PORT, as ProxyCommand of ssh. It can be stopped (a line that
stalls) and killed.
"""

import os
import select
import socket
import sys

link = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
to = {0: link.fileno(), link.fileno(): 1}
while True:
    for source in select.select(list(to), [], [])[0]:
        content = os.read(source, 65536)
        if not content:
            sys.exit(0)
        while content:
            content = content[os.write(to[source], content) :]
